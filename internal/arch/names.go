package arch

import (
	"fmt"
	"go/ast"
	"slices"
	"strconv"
	"strings"
)

// consumerNames are the names of package lua that the consumer may use: those
// of keys and entries, and those that start a partition's next generation.
// The consumer reads streams and knows nothing of lots.
var consumerNames = []string{
	"EntryID", "EventIDOf", "HasApplied", "IsEntry", "ParkedKey", "ParseEntryID", "PartitionsMax", "ReplaysKey", "StreamKey", "TrimmedKey",
	"New", "NextGeneration", "Options", "Scripts",
}

// ConsumerViolations returns one line for each forbidden name of
// package lua in a production file of the consumer. Calls on
// fields named scripts count, too.
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
		isLua := false
		switch of := selector.X.(type) {
		case *ast.Ident:
			isLua = of.Name == name
		case *ast.SelectorExpr:
			isLua = of.Sel.Name == "scripts"
		}
		if isLua && !slices.Contains(consumerNames, selector.Sel.Name) {
			found = append(found, fmt.Sprintf("consumer uses lua.%s: it may use only names of keys and entries", selector.Sel.Name))
		}
		return true
	})
	return found
}

// importedAs returns a file's name for path, or "".
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
