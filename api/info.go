package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"dibs/api/auth"
)

// Info answers GET /v1/info: what a reader of the claim streams needs to
// know about the service.
type Info struct {
	Version    string   `json:"version" doc:"of the program"`
	Partitions int      `json:"partitions" minimum:"1" doc:"claim streams: dibs:{p0}:claims, dibs:{p1}:claims and so on"`
	Durability string   `json:"durability" doc:"what holds of a claim that is answered: fast, Redis has it in memory; fsync, on disk; mysql, MySQL has committed its row"`
	Groups     []string `json:"groups" doc:"registered consumer groups; while MySQL is away, the groups of DIBS_GROUPS"`

	// Registered reads Groups; nil: they are fixed.
	Registered func(ctx context.Context) ([]string, error) `json:"-"`
}

// now returns the info with the registered groups.
func (i Info) now(ctx context.Context) Info {
	if i.Registered == nil {
		return i
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if groups, err := i.Registered(ctx); err == nil && len(groups) > 0 {
		i.Groups = groups
	}
	return i
}

// infoScope is any role.
const infoScope = auth.Viewer | auth.Storefront | auth.User

type infoOutput struct{ Body Info }

func (s *Server) getInfo(ctx context.Context, _ *struct{}) (*infoOutput, error) {
	return &infoOutput{Body: s.cfg.Info.now(ctx)}, nil
}

func (s Side) serveInfo(w http.ResponseWriter, r *http.Request) {
	body, err := json.Marshal(s.Info.now(r.Context()))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeJSON(w, string(body))
}
