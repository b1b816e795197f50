package arch

import (
	"fmt"
	"go/ast"
	"slices"
	"strconv"
	"strings"
)

// keyNames are the only names of package lua that the consumer may use: those of keys and of entry ids. It reads streams and runs no
// scripts.
var keyNames = []string{"EntryID", "ParkedKey", "ParseEntryID", "PartitionsMax", "ReplaysKey", "StreamKey", "TrimmedKey"}

// ConsumerViolations returns one line for each word of package lua in a production file of the consumer that is not
// a key name.
func ConsumerViolations(file *ast.File) []string {
	name := importedAs(file, module+"/lua")
	if name == "" {
		return nil
	}
	var found []string
	ast.Inspect(file, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		pkg, ok := selector.X.(*ast.Ident)
		if ok && pkg.Name == name && !slices.Contains(keyNames, selector.Sel.Name) {
			found = append(found, fmt.Sprintf("consumer uses lua.%s: it may use only key names", selector.Sel.Name))
		}
		return true
	})
	return found
}

// importedAs returns the name under which a file imports path, or "" if it does not.
func importedAs(file *ast.File, path string) string {
	for _, spec := range file.Imports {
		if got, err := strconv.Unquote(spec.Path.Value); err != nil || got != path {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path[strings.LastIndexByte(path, '/')+1:]
	}
	return ""
}
