package lua

import (
	"context"
	"fmt"
	"strconv"

	"dibs/models"
)

// PushMax bounds the packets of a call: some 100 µs of Redis.
const PushMax = 500

// statusPosition is push.lua's reply if Redis is not at the caller's
// position.
const statusPosition = 3

// Push is a run of packets with one time of release.
type Push struct {
	Epoch     int64           // the load, as it was read
	After     int64           // Redis' last position before
	Upto      int64           // Redis' last position after
	Units     int64           // free packets between the two
	ReleaseMs int64           // milliseconds since 1970; 0 is at once
	Packets   []models.Packet // those to give away, by position, at most PushMax
}

// Push sends a campaign's next packets, each counted once however often
// it is sent. It returns Redis' last position: p.Upto, or another one
// if Redis was not at p.After, and nothing changed. Errors: ErrAbsent,
// ErrDamaged, ErrUnavailable, ErrOutcomeUnknown (retry).
func (s *Scripts) Push(ctx context.Context, campaignID string, p *Push) (pushed int64, err error) {
	if len(p.Packets) > PushMax {
		return 0, fmt.Errorf("%w: %d packets in a call, must be at most %d", ErrUnavailable, len(p.Packets), PushMax)
	}
	k := s.KeysOf(campaignID)
	keys := []string{k.State, k.Waves, k.Packets(p.Epoch, p.ReleaseMs), k.Signals}
	args := append(make([]any, 0, 5+len(p.Packets)), p.Epoch, p.After, p.Upto, p.Units, p.ReleaseMs)
	for i := range p.Packets {
		args = append(args, packetEntry(&p.Packets[i]))
	}
	code, reply, err := s.run(ctx, "push", keys, args)
	switch {
	case err != nil:
		return 0, err
	case code == statusOK, code == statusPosition:
		if len(reply) == 2 {
			if at, ok := reply[1].(int64); ok {
				return at, nil
			}
		}
		return 0, badReply("push", reply)
	}
	return 0, refusal("push", campaignID, keys, code, reply)
}

func packetEntry(p *models.Packet) string {
	b := make([]byte, 0, 24+len(p.ID))
	b = append(strconv.AppendInt(b, p.Amount, 10), ':')
	return string(append(b, p.ID...))
}
