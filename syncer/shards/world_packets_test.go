package shards

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"dibs/models"
)

// rows are the packets of a world, its units with names, as MySQL has them: by number, from 0.
type rows []struct {
	shard  int // 0 is the reserve
	moveNo int64
}

// deal gives a shard the next packets of the reserve.
func (r rows) deal(shard int, moveNo, packets int64) (dealt []int64) {
	for p := range r {
		if r[p].shard == 0 && int64(len(dealt)) < packets {
			r[p].shard, r[p].moveNo = shard, moveNo
			dealt = append(dealt, int64(p))
		}
	}
	return dealt
}

// of are the packets that a grant dealt.
func (r rows) of(shard int, moveNo int64) (dealt []int64) {
	for p := range r {
		if r[p].shard == shard && r[p].moveNo == moveNo {
			dealt = append(dealt, int64(p))
		}
	}
	return dealt
}

// free are the packets of a shard but those that users have.
func (r rows) free(shard int, given []int64) (free []int64) {
	for p := range r {
		if r[p].shard == shard && !slices.Contains(given, int64(p)) {
			free = append(free, int64(p))
		}
	}
	return free
}

// putBack gives the reserve the packets of a recall.
func (r rows) putBack(m *models.StockMove) error {
	for _, p := range numbersOf(m.Packets) {
		if r[p].shard != m.Shard {
			return errNotThere
		}
		r[p].shard, r[p].moveNo = 0, 0
	}
	return nil
}

// claim gives users the first packets of the list.
func (h *held) claim(packets int64) {
	packets = min(packets, int64(len(h.list)))
	h.given, h.list = slices.Concat(h.given, h.list[:packets]), h.list[packets:]
}

// release takes back the packets that went last.
func (h *held) release(packets int64) {
	back := last(h.given, packets)
	h.list, h.given = slices.Concat(h.list, back), h.given[:len(h.given)-len(back)]
}

func last(list []int64, n int64) []int64 { return list[max(0, len(list)-int(n)):] }

// packetsOf are packets by their numbers; each has an amount of its own.
func packetsOf(numbers []int64) (packets []models.Packet) {
	for _, n := range numbers {
		packets = append(packets, models.Packet{ID: strconv.FormatInt(n, 10), Amount: n + 1})
	}
	return packets
}

func numbersOf(packets []models.Packet) (numbers []int64) {
	for i := range packets {
		numbers = append(numbers, packets[i].Amount-1)
	}
	return numbers
}

// brokenPackets says what must never be of packets: each is in one place, and as many are in each as it counts.
func (w *world) brokenPackets() error {
	if n := len(w.rows.free(0, nil)); int64(n) != w.reserve {
		return fmt.Errorf("the reserve counts %d packets and has %d", w.reserve, n)
	}
	taken := map[int64]int{}
	for i, s := range w.shards {
		for _, p := range s.disk.given {
			if taken[p] != 0 {
				return fmt.Errorf("packet %d is given to users of the shards %d and %d", p, taken[p], i+1)
			}
			taken[p] = i + 1
		}
	}
	for i, s := range w.shards {
		if s.isAbsent || s.memory.epoch != s.epoch || s.memory.moves < s.movedNo {
			continue
		}
		if n := int64(len(s.memory.list)); n != s.memory.free() {
			return fmt.Errorf("shard %d counts %d packets and has %d", i+1, s.memory.free(), n)
		}
		for _, p := range s.memory.list {
			if taken[p] != 0 || w.rows[p].shard != i+1 {
				return fmt.Errorf("packet %d is in shard %d, by its row in %d, and given in %d", p, i+1, w.rows[p].shard, taken[p])
			}
		}
	}
	return nil
}

// errCents says that users got more or less than was put in.
var errCents = errors.New("the packets that users have are not worth what was put in")

// cents fails unless users have all that was put in.
func (w *world) cents() error {
	want, got := w.total*(w.total+1)/2, int64(0)
	for _, s := range w.shards {
		for _, p := range packetsOf(s.disk.given) {
			got += p.Amount
		}
	}
	if got != want {
		return fmt.Errorf("%w: %d of %d", errCents, got, want)
	}
	return nil
}
