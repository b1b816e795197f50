package wire

import "regexp"

// formula matches what a spreadsheet may take for the start of a formula.
// Where it separates cells by semicolons or tabs, as in many countries, one
// text may become several cells.
var formula = regexp.MustCompile(`(^|[;\t\r\n])([=+@＝＋－＠-])`)

// Cell makes outside text safe for a cell of a spreadsheet.
func Cell(text string) string { return formula.ReplaceAllString(text, "$1'$2") }
