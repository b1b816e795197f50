package lua

import (
	"context"
	"fmt"
	"strings"

	"dibs/models"
)

// ReleasesMax is the most claims that one call of release.lua gives back.
const ReleasesMax = 100

// Release is a released claim, whose units go back.
type Release struct {
	Claim ClaimRecord // as MySQL holds it

	EventID string
	Event   []byte // its JSON
}

// Released is what release.lua did for one claim.
type Released int

// What release.lua does for a claim, by its codes.
const (
	releasedNow     Released = 0 // its units were returned and its event was added
	releasedAway    Released = 1 // its event was added; Redis does not hold the lot
	releasedBefore  Released = 2 // both were done before
	ReleasedDamaged Released = 3 // Redis holds no such claim, or the user holds less: nothing was changed for it
)

// Release gives back what up to ReleasesMax claims of one campaign took, once each however often it is called, and adds the event of
// each to the claim stream. The stock gets its units back, and so does each limit that counted the claim and whose window in the
// record of its subject is the claim's. Errors: ErrOther (a loader is at it), ErrDamaged, ErrUnavailable, ErrOutcomeUnknown (safe to send
// again).
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
	reply, err := s.run(ctx, s.release, keys, args)
	if err != nil {
		return nil, err
	}
	code, err := status(s.release.name, reply)
	if err != nil {
		return nil, err
	}
	switch code {
	case statusOK:
		return s.decodeReleases(len(releases), reply)
	case statusElse:
		return nil, fmt.Errorf("%w: %s: a process loads it", ErrOther, c.ID)
	}
	return nil, refusal(s.release.name, c.ID, keys, code, reply)
}

func appendReleaseArgs(args []any, r *Release, finder *windowFinder) ([]any, error) {
	p := &r.Claim
	if p.Quantity < 1 || p.Quantity > models.QuantityMax { // below 1 would take stock
		return nil, fmt.Errorf("%w: release of %d units not sent, must be 1 to %d", ErrUnavailable, p.Quantity, models.QuantityMax)
	}
	whole, err := appendRecord(nil, p)
	if err != nil {
		return nil, err
	}
	return append(args, whole[:keyLength], whole[keyLength:], p.UserID, p.Quantity, finder.text(p.At), r.EventID, r.Event,
		subjectFields(p.Subjects)), nil
}

// subjectFields are the fields of a hash of users for all subjects of a claim.
func subjectFields(subjects models.Subjects) string {
	fields := make([]string, 0, len(subjects))
	for _, name := range subjects.Names() {
		fields = append(fields, subjectField(subjects, name))
	}
	return strings.Join(fields, subjectMark)
}

func (s *Scripts) decodeReleases(n int, reply []any) ([]Released, error) {
	if len(reply) != 1+n {
		return nil, badReply(s.release.name, reply)
	}
	all := make([]Released, n)
	for i := range all {
		code, ok := reply[1+i].(int64)
		if !ok || code < int64(releasedNow) || code > int64(ReleasedDamaged) {
			return nil, badReply(s.release.name, reply)
		}
		all[i] = Released(code)
	}
	return all, nil
}
