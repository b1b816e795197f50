package arch_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Four rules that no linter has: a statement assigns several values only if
// they depend on each other; an if header changes nothing that outlives it; a
// literal of four or more fields names them; no loop stands between a query and
// its error, as a read that fails may leave a row of zeros behind.
func TestStatementsDoOneThing(t *testing.T) {
	t.Parallel()
	var found []string
	root := filepath.Join("..", "..")
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "testdata" || entry.Name() != ".." && strings.HasPrefix(entry.Name(), ".")) {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			found = append(found, packed(t, path, nil)...)
		}
		return nil
	}))
	require.Empty(t, found, strings.Join(found, "\n"))
}

// One of each is planted.
func TestPackedStatementsAreFound(t *testing.T) {
	t.Parallel()
	const allowed = `package x
func f() { a, b = b, a; x, y := g(); if v := 1; v > 0 {}; _ = t{1, 2, 3}; _ = []int{1, 2, 3, 4}; _ = t{a: 1, b: 2, c: 3, d: 4}; i, n = i+1, n*i
err := q.Error; if err != nil {}; for range a {}; all, err := f(); for range b { err = g(err) } }`
	require.Empty(t, packed(t, "x.go", []byte(allowed)))
	for _, planted := range []string{
		"a, b := 1, 2", "a.x, b = 1, 2", "if a = 1; a > 0 {}", "if a++; a > 0 {}", "_ = t{1, 2, 3, 4}", "_ = []t{{1, 2, 3, 4}}", "_ = map[string]p.T{\"\": {1, 2, 3, 4}}",
		"err := q.Error; for range rows {}", "err = q.Error; n := 1; for range rows {}; return err", "all, err := f(); for range all {}",
	} {
		require.Len(t, packed(t, "x.go", []byte("package x\nfunc f() { "+planted+" }")), 1, planted)
	}
}

// packed returns a file's packed statements, one line each.
func packed(t *testing.T, path string, source any) (found []string) {
	t.Helper()
	files := token.NewFileSet()
	if text, isText := source.([]byte); isText && text == nil {
		source = nil
	}
	file, err := parser.ParseFile(files, path, source, 0)
	require.NoError(t, err)
	report := func(at ast.Node, rule string) { found = append(found, files.Position(at.Pos()).String()+": "+rule) }
	literal := func(typ ast.Expr, elements []ast.Expr, at ast.Node) {
		isKeyed := slices.ContainsFunc(elements, func(e ast.Expr) bool { _, is := e.(*ast.KeyValueExpr); return is })
		if _, isList := typ.(*ast.ArrayType); !isList && !isKeyed && len(elements) >= 4 && types.ExprString(typ) != "table.Row" {
			report(at, "literal without names of its fields")
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt:
			for i := range n.List {
				if loop := loopBeforeError(n.List[i:]); loop != nil {
					report(loop, "a loop before the error is looked at")
				}
			}
		case *ast.AssignStmt:
			if len(n.Rhs) > 1 && !dependent(n) {
				report(n, "several assignments in one")
			}
		case *ast.IfStmt:
			assign, isAssign := n.Init.(*ast.AssignStmt)
			_, isCount := n.Init.(*ast.IncDecStmt)
			if isCount || isAssign && assign.Tok != token.DEFINE {
				report(n, "an if that changes something in its header")
			}
		case *ast.CompositeLit:
			if n.Type == nil {
				return true
			}
			literal(n.Type, n.Elts, n)
			for _, row := range rows(n) {
				literal(row.typ, row.lit.Elts, row.lit)
			}
		}
		return true
	})
	return found
}

// loopBeforeError returns the loop, if any, between the first
// statement, which sets err, and the one that reads it.
func loopBeforeError(list []ast.Stmt) ast.Stmt {
	set, isAssign := list[0].(*ast.AssignStmt)
	if !isAssign || !slices.ContainsFunc(set.Lhs, isErr) || !returnsErr(set.Rhs[0]) {
		return nil
	}
	for _, next := range list[1:] {
		isRead := false
		ast.Inspect(next, func(part ast.Node) bool {
			expr, isExpr := part.(ast.Expr)
			isRead = isRead || isExpr && isErr(expr)
			return !isRead
		})
		if isRead {
			return nil
		}
		if _, isLoop := next.(*ast.RangeStmt); isLoop {
			return next
		}
	}
	return nil
}

// returnsErr reports whether e is a call, or the Error of a query.
func returnsErr(e ast.Expr) bool {
	field, isField := e.(*ast.SelectorExpr)
	_, isCall := e.(*ast.CallExpr)
	return isCall || isField && field.Sel.Name == "Error"
}

func isErr(e ast.Expr) bool { return types.ExprString(e) == "err" }

// dependent reports whether an assigned variable occurs on the
// other side, as in a swap.
func dependent(n *ast.AssignStmt) bool {
	for _, left := range n.Lhs {
		name := types.ExprString(left)
		for _, right := range n.Rhs {
			isUsed := false
			ast.Inspect(right, func(part ast.Node) bool {
				expr, isExpr := part.(ast.Expr)
				isUsed = isUsed || isExpr && types.ExprString(expr) == name
				return !isUsed
			})
			if isUsed {
				return true
			}
		}
	}
	return false
}

type rowLiteral struct {
	typ ast.Expr
	lit *ast.CompositeLit
}

// rows are the elements of a list or map that omit their named type.
func rows(n *ast.CompositeLit) (all []rowLiteral) {
	var element ast.Expr
	switch typ := n.Type.(type) {
	case *ast.ArrayType:
		element = typ.Elt
	case *ast.MapType:
		element = typ.Value
	default:
		return nil
	}
	if star, isStar := element.(*ast.StarExpr); isStar {
		element = star.X
	}
	for _, e := range n.Elts {
		if pair, isPair := e.(*ast.KeyValueExpr); isPair {
			e = pair.Value
		}
		if lit, isLit := e.(*ast.CompositeLit); isLit && lit.Type == nil {
			all = append(all, rowLiteral{typ: element, lit: lit})
		}
	}
	return all
}
