package console

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"

	"dibs/api/wire"
)

type asset struct {
	body    []byte
	kind    string
	version string // part of its address, so that browsers cache it until it changes
}

// kinds are the files' types, independent of this machine's tables.
// Browsers refuse scripts and styles of another type.
var kinds = map[string]string{
	".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".LICENSE": "text/plain; charset=utf-8",
}

var errKind = errors.New("a file of a kind that has no type")

func readStatic() (map[string]asset, error) {
	all := make(map[string]asset)
	entries, err := fs.ReadDir(files, "static")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		body, err := files.ReadFile("static/" + e.Name())
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(body)
		kind, known := kinds[path.Ext(e.Name())]
		if !known {
			return nil, fmt.Errorf("%w: static/%s", errKind, e.Name())
		}
		all[e.Name()] = asset{body, kind, hex.EncodeToString(sum[:6])}
	}
	return all, nil
}

func (c *Console) getStatic(w http.ResponseWriter, r *http.Request) {
	file, there := c.static[r.PathValue("name")]
	if !there {
		wire.Refuse(wire.CodeNotFound).Write(w)
		return
	}
	if r.URL.Query().Get("v") == file.version {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	w.Header().Set("Content-Type", file.kind)
	_, _ = w.Write(file.body)
}

// parsePages makes a template for each page, inside the layout.
func (c *Console) parsePages() (map[string]*template.Template, error) {
	layout, err := template.New("layout").Funcs(c.functions()).ParseFS(files, "pages/layout.html", "pages/health.html", "pages/table.html",
		"pages/records.html", "pages/fields.html")
	if err != nil {
		return nil, err
	}
	all := map[string]*template.Template{}
	for _, name := range []string{
		"sign-in", "overview", "campaign", "act", "new", "find", "claim", "claims", "trouble", "processes", "audit", "refused",
	} {
		page, err := layout.Clone()
		if err != nil {
			return nil, err
		}
		all[name], err = page.ParseFS(files, "pages/"+name+".html")
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
