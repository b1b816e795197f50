package operator

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"dibs/api/wire"
	"dibs/models"
)

// Groups is the registry of consumer groups. Any undocumented error means
// that MySQL or Redis doesn't answer.
type Groups interface {
	List(ctx context.Context) ([]models.GroupLag, error)
	Add(ctx context.Context, name string) (added bool, err error)
	// Remove returns models.ErrNotFound, or models.ErrInUse while a process
	// reads for the group.
	Remove(ctx context.Context, name string) error
}

type (
	groupInput struct {
		Name string `path:"name" doc:"of the consumer group"`
	}
	// GroupsOutput is the answer of ListGroups.
	GroupsOutput struct {
		Body struct {
			Groups []models.GroupLag `json:"groups" nullable:"false"`
		}
	}
	// GroupOutput is the answer of AddGroup.
	GroupOutput struct {
		Status int
		Body   struct {
			Name string `json:"name"`
		}
	}
)

// ListGroups is GET /v1/groups.
func (s *Routes) ListGroups(ctx context.Context, _ *struct{}) (*GroupsOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := s.cfg.Groups.List(ctx)
	if err != nil {
		return nil, s.refuseGroup(ctx, "list groups", err)
	}
	out := &GroupsOutput{}
	out.Body.Groups = list
	return out, nil
}

// AddGroup is PUT /v1/groups/{name}.
func (s *Routes) AddGroup(ctx context.Context, in *groupInput) (*GroupOutput, error) {
	if p := wire.InvalidID("name", cmp.Or(models.CheckCampaignID(in.Name), models.CheckSegment(in.Name))); p != nil {
		return nil, p
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	added, err := s.cfg.Groups.Add(ctx, in.Name)
	if err != nil {
		return nil, s.refuseGroup(ctx, "add group", err)
	}
	out := &GroupOutput{Status: http.StatusOK}
	out.Body.Name = in.Name
	if added {
		out.Status = http.StatusCreated
	}
	return out, nil
}

// RemoveGroup is DELETE /v1/groups/{name}.
func (s *Routes) RemoveGroup(ctx context.Context, in *groupInput) (*struct{}, error) {
	if in.Name == models.GroupSyncer {
		return nil, wire.Invalid("name", "must not be "+models.GroupSyncer+", which writes the claims into MySQL")
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := s.cfg.Groups.Remove(ctx, in.Name); err != nil {
		return nil, s.refuseGroup(ctx, "remove group", err)
	}
	return nil, nil //nolint:nilnil // 204 has no body
}

func (s *Routes) refuseGroup(ctx context.Context, verb string, err error) *wire.Problem {
	switch {
	case errors.Is(err, models.ErrNotFound):
		return wire.Refuse(wire.CodeGroupNotFound)
	case errors.Is(err, models.ErrInUse):
		return wire.Refuse(wire.CodeGroupInUse)
	}
	return s.refuse(ctx, verb, "", err, "MySQL or Redis does not answer. Send the request again: a second time does no harm.")
}
