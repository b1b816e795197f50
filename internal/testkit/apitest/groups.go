package apitest

import (
	"context"

	"dibs/models"
)

// Groups fakes the registry of consumer groups.
type Groups struct {
	Lags   []models.GroupLag
	Fail   error
	Called []string
}

// List returns Lags.
func (g *Groups) List(context.Context) ([]models.GroupLag, error) { return g.Lags, g.Fail }

// Add reports the group "again" as existing.
func (g *Groups) Add(_ context.Context, name string) (bool, error) {
	g.Called = append(g.Called, "add "+name)
	return name != "again", g.Fail
}

// Remove returns Fail.
func (g *Groups) Remove(_ context.Context, name string) error {
	g.Called = append(g.Called, "remove "+name)
	return g.Fail
}
