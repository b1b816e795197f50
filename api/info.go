package api

import (
	"context"
	"encoding/json"
	"net/http"

	"dibs/api/auth"
)

// Info is the answer of GET /v1/info: what a reader of the claim streams needs to know of the service.
type Info struct {
	Version    string   `json:"version" doc:"of the program"`
	Partitions int      `json:"partitions" minimum:"1" doc:"claim streams: dibs:{p0}:claims, dibs:{p1}:claims and so on"`
	Durability string   `json:"durability" doc:"what holds of a claim before it is answered: fast, fsync or replica:N"`
	Groups     []string `json:"groups" doc:"consumer groups that this process registers at first; GET /v1/groups lists all"`
}

// infoScope are those who may read the info: everybody who has a token.
const infoScope = auth.Viewer | auth.Storefront | auth.User

type infoOutput struct{ Body Info }

// getInfo is GET /v1/info.
func (s *Server) getInfo(context.Context, *struct{}) (*infoOutput, error) {
	return &infoOutput{Body: s.cfg.Info}, nil
}

// serveInfo is GET /v1/info of a role without an API.
func (s Side) serveInfo(w http.ResponseWriter, _ *http.Request) {
	body, err := json.Marshal(s.Info)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeJSON(w, string(body))
}
