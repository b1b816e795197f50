package reread

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"
)

// textMax limits a file that is read whole, in bytes.
const textMax = 1 << 20

// byteOrderMark is written by Windows editors before UTF-8 text.
const byteOrderMark = "\ufeff"

var (
	errLarge = fmt.Errorf("is larger than %d bytes", textMax)
	errUTF8  = errors.New("is not UTF-8 text: editors and shells on Windows may write UTF-16")
)

// Text reads a settings file without its byte order mark and final line
// breaks. Errors: those of package os, or what is wrong with the file. They
// contain its path but nothing of its text.
func Text(path string) (string, error) {
	file, err := os.Open(path) //nolint:gosec // the operator's setting
	if err != nil {
		return "", err //nolint:wrapcheck // it names the path
	}
	defer func() { _ = file.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(file, textMax+1))
	switch {
	case err != nil:
		return "", err //nolint:wrapcheck // it names the path
	case len(text) > textMax:
		return "", fmt.Errorf("%s %w", path, errLarge)
	case !utf8.Valid(text):
		return "", fmt.Errorf("%s %w", path, errUTF8)
	}
	return strings.TrimRight(string(bytes.TrimPrefix(text, []byte(byteOrderMark))), "\r\n"), nil
}
