package lua

import (
	"context"
	"fmt"
	"strings"

	"dibs/models"
)

// ReleasesMax bounds the claims of a call of release.lua.
const ReleasesMax = 100

// Release is a released claim, whose units are freed.
type Release struct {
	Claim ClaimRecord // as MySQL has it

	EventID string
	Event   []byte // its JSON
}

// Released is the result of a release.
type Released int

// Results, by their codes.
const (
	releasedNow     Released = 0 // the units were freed and the event was appended
	releasedAway    Released = 1 // the event was appended; the lot is away
	releasedBefore  Released = 2 // both were done before
	ReleasedDamaged Released = 3 // the record is missing or does not match: nothing changed for it
)

// Release frees what up to ReleasesMax claims of one campaign took, each
// once, and appends their events. Stock gets the units back. Limits do, too,
// in the claim's window alone. Errors: ErrOther (a loader has the lot),
// ErrDamaged, ErrUnavailable, ErrOutcomeUnknown (retry).
func (s *Scripts) Release(ctx context.Context, c *models.Campaign, releases []Release) ([]Released, error) {
	if len(releases) == 0 || len(releases) > ReleasesMax {
		return nil, fmt.Errorf("%w: %d releases in a call, must be 1 to %d", ErrUnavailable, len(releases), ReleasesMax)
	}
	zone, err := c.Location()
	if err != nil {
		return nil, fmt.Errorf("lua: campaign %s: %w", c.ID, err)
	}
	k := s.KeysOf(c.ID)
	keys := []string{k.State, k.Users, k.Keys, k.Stream, k.Signals}
	args := make([]any, 0, 8*len(releases))
	finder := windowFinder{zone: zone}
	for i := range releases {
		args, err = appendReleaseArgs(args, &releases[i], &finder)
		if err != nil {
			return nil, err
		}
	}
	code, reply, err := s.run(ctx, "release", keys, args)
	switch {
	case err != nil:
		return nil, err
	case code == statusOK:
		return decodeReleases(len(releases), reply)
	case code == statusElse:
		return nil, fmt.Errorf("%w: %s: a process loads it", ErrOther, c.ID)
	}
	return nil, refusal("release", c.ID, keys, code, reply)
}

func appendReleaseArgs(args []any, r *Release, finder *windowFinder) ([]any, error) {
	p := &r.Claim
	if p.Quantity < 1 || p.Quantity > models.QuantityMax { // below 1 would take units
		return nil, fmt.Errorf("%w: release of %d units not sent, must be 1 to %d", ErrUnavailable, p.Quantity, models.QuantityMax)
	}
	whole, err := appendRecord(nil, p)
	if err != nil {
		return nil, err
	}
	return append(args, whole[:keyLength], whole[keyLength:], p.UserID, p.Quantity, finder.text(p.At), r.EventID,
		r.Event, subjectFields(p.Subjects)), nil
}

func subjectFields(subjects models.Subjects) string {
	fields := make([]string, 0, len(subjects))
	for _, name := range subjects.Names() {
		fields = append(fields, subjectField(subjects, name))
	}
	return strings.Join(fields, subjectMark)
}

func decodeReleases(n int, reply []any) ([]Released, error) {
	if len(reply) != 1+n {
		return nil, badReply("release", reply)
	}
	all := make([]Released, n)
	for i := range all {
		code, ok := reply[1+i].(int64)
		if !ok || code < int64(releasedNow) || code > int64(ReleasedDamaged) {
			return nil, badReply("release", reply)
		}
		all[i] = Released(code)
	}
	return all, nil
}
