package lua

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrDurability is wrapped by every refusal of a durability: a text that names none, or a server that can't provide it.
var ErrDurability = errors.New("lua: durability")

// replicasMax is the most replicas that a durability may name.
const replicasMax = 99

// Durability is what must hold of a claim before it is answered. The zero value is fast: Redis has it in memory.
type Durability struct {
	Fsync    bool // it is on Redis' disk
	Vouched  bool // with Fsync: the operator vouches for settings of Redis that can't be read
	Replicas int  // so many replicas have it in memory; 0 is none. Not together with Fsync
}

const (
	durabilityFast    = "fast"
	durabilityFsync   = "fsync"
	durabilityVouched = "fsync:vouched"
	durabilityReplica = "replica:"
)

// ParseDurability reads fast, fsync, fsync:vouched or replica:N, N from 1 to replicasMax. The error wraps ErrDurability.
func ParseDurability(text string) (Durability, error) {
	switch text {
	case durabilityFast:
		return Durability{}, nil
	case durabilityFsync:
		return Durability{Fsync: true}, nil
	case durabilityVouched:
		return Durability{Fsync: true, Vouched: true}, nil
	}
	number, isReplica := strings.CutPrefix(text, durabilityReplica)
	n, err := strconv.Atoi(number)
	if !isReplica || err != nil || n < 1 || n > replicasMax || strconv.Itoa(n) != number {
		return Durability{}, fmt.Errorf("%w: must be fast, fsync or replica:N with N from 1 to %d, not %q", ErrDurability, replicasMax, text)
	}
	return Durability{Replicas: n}, nil
}

// String is what ParseDurability reads.
func (d Durability) String() string {
	switch {
	case d.Replicas > 0:
		return durabilityReplica + strconv.Itoa(d.Replicas)
	case d.Fsync && d.Vouched:
		return durabilityVouched
	case d.Fsync:
		return durabilityFsync
	default:
		return durabilityFast
	}
}

// Waits reports whether an answer waits for more than Redis' memory.
func (d Durability) Waits() bool { return d.Fsync || d.Replicas > 0 }

func (d Durability) check() error {
	if d.Fsync && d.Replicas > 0 || d.Replicas < 0 || d.Replicas > replicasMax || d.Vouched && !d.Fsync {
		return fmt.Errorf("%w: %+v is none", ErrDurability, d)
	}
	return nil
}
