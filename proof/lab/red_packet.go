package lab

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/redis/go-redis/v9"
)

//go:embed red_packet.lua
var redPacketSource string

// redPacket takes from a list that was filled before, by the red packet article's script, one packet an evaluation.
type redPacket struct {
	counter

	script *redis.Script
}

func redPacketStrategy() Entry {
	return Entry{
		Name: "red-packet", Title: "red packet list script, one by one", Sound: true, DieAt: StepWritten,
		Flaw: "one script call a packet; the books are whatever reads the second list",
		New: func(env Env) (Strategy, error) {
			return &redPacket{counter: counter{env}, script: redis.NewScript(redPacketSource)}, nil
		},
	}
}

func (s *redPacket) packetsKey() string { return s.key("packets") }

// pushAtOnce is how many packets one RPUSH brings.
const pushAtOnce = 1000

// packetsMax bounds the list: a campaign of plenty would not fit, and no round takes as many.
const packetsMax = 400_000

// Prepare pushes the packets: id and amount, in minor units.
func (s *redPacket) Prepare(ctx context.Context) error {
	if err := s.script.Load(ctx, s.Redis).Err(); err != nil {
		return fmt.Errorf("lab: preload: %w", err)
	}
	if err := s.Redis.Del(ctx, s.packetsKey(), s.takenKey(), s.usersKey()).Err(); err != nil {
		return fmt.Errorf("lab: prepare: %w", err)
	}
	count := min(s.Campaign.Units, packetsMax)
	_, err := s.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for from := int64(0); from < count; from += pushAtOnce {
			batch := make([]any, 0, pushAtOnce)
			for n := from; n < min(from+pushAtOnce, count); n++ {
				batch = append(batch, fmt.Sprintf(`{"id":"%d","amount":%d}`, n, 100+n%100))
			}
			p.RPush(ctx, s.packetsKey(), batch...)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("lab: prepare: %w", err)
	}
	return nil
}

// Claim takes a packet. The list is for one packet a user: a user who comes again is notified of the first.
func (s *redPacket) Claim(ctx context.Context, user string) (Outcome, error) {
	code, _, err := s.take(ctx, user)
	if err != nil {
		return 0, err
	}
	return code, s.at(StepWritten)
}

func (s *redPacket) take(ctx context.Context, user string) (code Outcome, packet string, err error) {
	keys := []string{s.packetsKey(), s.usersKey(), s.takenKey()}
	reply, err := s.script.Run(ctx, s.Redis, keys, user).Slice()
	if err != nil || len(reply) != 2 {
		return 0, "", fmt.Errorf("lab: script: %w", err)
	}
	n, _ := reply[0].(int64)
	packet, _ = reply[1].(string)
	return Outcome(n), packet, nil
}
