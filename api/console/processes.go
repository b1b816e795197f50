package console

import (
	"net/http"

	"dibs/api/console/health"
	"dibs/api/console/signin"
)

func (c *Console) getHealth(w http.ResponseWriter, r *http.Request, _ *signin.Session) {
	h := health.Of(r.Context(), &c.cfg.Health)
	c.fragment(w, "health", &h)
}

type processesPage struct {
	Health   health.Report
	Settings []Setting
}

// Setting is a setting of this process, with secrets masked.
type Setting struct{ Variable, Value, From, Meaning string }

func (c *Console) getProcesses(w http.ResponseWriter, r *http.Request, s *signin.Session) {
	c.show(w, s, http.StatusOK, "processes", &processesPage{health.Of(r.Context(), &c.cfg.Health), c.cfg.Settings})
}
