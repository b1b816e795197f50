package lua

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ErrNotNow says that Redis cannot do something at this moment that it may do later.
var ErrNotNow = errors.New("lua: redis cannot do this now")

// CheckDurability returns nil if Redis, each master of a cluster, can provide Options.Durability now. A refusal wraps ErrDurability
// and names the setting that must be changed first; any other error may pass: ErrNotNow, or a Redis that does not answer. advice is for the
// log: settings that are allowed, but are slow or can't be checked.
func (s *Scripts) CheckDurability(ctx context.Context) (advice []string, err error) {
	if !s.opts.Durability.Waits() {
		return nil, nil
	}
	nodes, err := s.masters(ctx)
	if err != nil {
		return nil, err
	}
	var later error
	for _, node := range nodes {
		one, err := s.checkNode(ctx, node)
		switch {
		case errors.Is(err, ErrDurability):
			return nil, err
		case err != nil:
			later = err
		}
		advice = append(advice, one...)
	}
	return advice, later
}

// checkNode is CheckDurability for one server.
func (s *Scripts) checkNode(ctx context.Context, node *redis.Client) (advice []string, err error) {
	check := s.checkFsync
	if s.opts.Durability.Replicas > 0 {
		check = s.checkReplicas
	}
	advice, err = check(ctx, node)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", node.Options().Addr, err)
	}
	return advice, nil
}

// masters are the servers that claims may be made on.
func (s *Scripts) masters(ctx context.Context) ([]*redis.Client, error) {
	switch c := s.rdb.(type) {
	case *redis.Client:
		return []*redis.Client{c}, nil
	case *sentinelClient:
		return []*redis.Client{c.Client}, nil
	case *redis.ClusterClient:
		found := make(chan *redis.Client, clusterMastersMax)
		err := c.ForEachMaster(ctx, func(_ context.Context, one *redis.Client) error {
			select {
			case found <- one:
				return nil
			default:
				return fmt.Errorf("%w: a cluster of more than %d masters", ErrDurability, clusterMastersMax)
			}
		})
		close(found)
		var nodes []*redis.Client
		for one := range found {
			nodes = append(nodes, one)
		}
		if err != nil {
			return nil, fmt.Errorf("lua: masters of the cluster: %w", err)
		}
		return nodes, nil
	default:
		return nil, fmt.Errorf("%w: %w: %T", ErrDurability, errClient, c)
	}
}

// clusterMastersMax is as many as Redis Cluster is made for.
const clusterMastersMax = 1000

func (s *Scripts) checkReplicas(ctx context.Context, node *redis.Client) ([]string, error) {
	info, err := Info(ctx, node, "replication")
	if err != nil {
		return nil, err
	}
	if role := info["role"]; role != "master" { // of a failover, perhaps
		return nil, fmt.Errorf("%w: replica:%d needs a primary, this is a %s", ErrNotNow, s.opts.Durability.Replicas, role)
	}
	online := 0
	for name, value := range info {
		if strings.HasPrefix(name, "slave") && strings.Contains(value, "state=online") {
			online++
		}
	}
	if need := s.opts.Durability.Replicas; online < need {
		kind := ErrNotNow
		if neverHadReplicas(info) {
			kind = ErrDurability
		}
		return nil, fmt.Errorf("%w: replica:%d needs %d replicas, %d are online", kind, need, need, online)
	}
	if info["min_slaves_good_slaves"] == "" {
		return []string{fmt.Sprintf("set min-replicas-to-write %d in Redis, or claims that find too few replicas are made and "+
			"answered outcome_unknown, where Redis could refuse them", s.opts.Durability.Replicas)}, nil
	}
	return nil, nil
}

// neverHadReplicas reports whether nothing says that a primary has, had or should have a replica: no backlog, which a replica starts and
// which ends an hour after the last replica; no former primary, which a promoted replica has; and no min-replicas-to-write.
func neverHadReplicas(info map[string]string) bool {
	return info["connected_slaves"] == "0" && info["repl_backlog_active"] == "0" && info["second_repl_offset"] == "-1" &&
		info["min_slaves_good_slaves"] == ""
}

func (s *Scripts) checkFsync(ctx context.Context, node *redis.Client) ([]string, error) {
	info, err := Info(ctx, node, "persistence")
	if err != nil {
		return nil, err
	}
	if IsLoading(info) {
		return nil, fmt.Errorf("%w: it loads its data", ErrNotNow)
	}
	if info["aof_enabled"] != "1" {
		return nil, fmt.Errorf(`%w: fsync needs "appendonly yes", it is off`, ErrDurability)
	}
	if lost, err := DefaultUserAdvice(ctx, node); err != nil || lost != "" && !s.opts.Durability.Vouched {
		return nil, cmp.Or(err, fmt.Errorf("%w: fsync: %s", ErrDurability, lost))
	}
	waits, err := knowsWaitAOF(ctx, node)
	if err != nil {
		return nil, err
	}
	if !waits {
		s.noWaitAOF.Store(true)
	}
	answer := configGet(ctx)
	_ = node.Process(ctx, answer)
	if err := answer.Err(); err != nil {
		return s.withoutConfig(err, waits)
	}
	return checkConfig(answer, waits)
}

// withoutConfig is for servers that don't let their settings be read, as many managed ones.
func (s *Scripts) withoutConfig(err error, waits bool) ([]string, error) {
	if !isRefusal(err) {
		return nil, fmt.Errorf("lua: CONFIG GET: %w", err)
	}
	const must = "appendfsync must be always, no-appendfsync-on-rewrite no and aof-load-truncated no"
	switch {
	case waits: // the wait of each claim checks the others, but none checks how the file is loaded
		return []string{"aof-load-truncated must be no; that can't be checked here (" + err.Error() + ")"}, nil
	case s.opts.Durability.Vouched:
		return []string{must + "; that can't be checked here (" + err.Error() + ") and was vouched for"}, nil
	default:
		return nil, fmt.Errorf("%w: fsync on a server without WAITAOF: %s; that can't be checked here (%s): say %s if you vouch for it",
			ErrDurability, must, err.Error(), durabilityVouched)
	}
}

// knowsWaitAOF sends a WAITAOF that waits for nothing.
func knowsWaitAOF(ctx context.Context, node *redis.Client) (bool, error) {
	err := node.Do(ctx, "waitaof", 0, 0, 1).Err()
	switch {
	case err == nil:
		return true, nil
	case isUnknownCommand(err):
		return false, nil
	case isRefusal(err):
		return false, fmt.Errorf("%w: fsync: WAITAOF is refused: %w", ErrDurability, err)
	default:
		return false, fmt.Errorf("lua: WAITAOF: %w", err)
	}
}

// isRefusal reports whether the server refuses the command for good; other errors may pass.
func isRefusal(err error) bool {
	return redis.HasErrorPrefix(err, "NOPERM") || isUnknownCommand(err) || redis.HasErrorPrefix(err, "Unknown")
}

// configGet asks for the settings that fsync needs. Redis before 7.0 takes one name only, so it can't answer.
func configGet(ctx context.Context) *redis.Cmd {
	return redis.NewCmd(ctx, "config", "get", "appendonly", "appendfsync", "no-appendfsync-on-rewrite", "aof-load-truncated")
}

// checkConfig reads the reply of configGet. A server that knows WAITAOF may sync each second; then an answer takes that second.
func checkConfig(answer *redis.Cmd, waits bool) (advice []string, err error) {
	list, err := answer.Slice()
	if err != nil {
		return nil, err
	}
	conf := map[string]string{}
	for i := 0; i+1 < len(list); i += 2 {
		name, _ := list[i].(string)
		conf[name], _ = list[i+1].(string)
	}
	everySec := waits && conf["appendfsync"] == "everysec"
	switch {
	case conf["appendonly"] != "yes":
		return nil, fmt.Errorf(`%w: fsync needs "appendonly yes", it is %s`, ErrDurability, strconv.Quote(conf["appendonly"]))
	case conf["appendfsync"] != "always" && !everySec:
		return nil, fmt.Errorf(`%w: fsync needs "appendfsync always", it is %s`, ErrDurability, strconv.Quote(conf["appendfsync"]))
	case conf["no-appendfsync-on-rewrite"] != "no":
		return nil, fmt.Errorf(`%w: fsync needs "no-appendfsync-on-rewrite no", it is %s`,
			ErrDurability, strconv.Quote(conf["no-appendfsync-on-rewrite"]))
	case conf["aof-load-truncated"] != "no":
		return nil, fmt.Errorf(`%w: fsync needs "aof-load-truncated no", it is %s: a crash in the middle of a write leaves half a transaction `+
			`in the file, and servers that load it nevertheless mix it up with later claims`,
			ErrDurability, strconv.Quote(conf["aof-load-truncated"]))
	case everySec:
		return []string{"appendfsync is everysec: each claim waits up to a second for its answer; always answers sooner"}, nil
	default:
		return nil, nil
	}
}

// IsLoading reports whether a server still loads its data, by its INFO. Until then it says that it has no append-only file, whatever its
// setting.
func IsLoading(info map[string]string) bool {
	return info["loading"] == "1" || info["async_loading"] == "1"
}

// MayPass reports whether a server that refused, or did not answer, may answer later without a change of its settings or of this process'.
func MayPass(err error) bool {
	var answered redis.Error
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var network *net.OpError
	switch {
	case errors.As(err, &network) && network.Op == "remote error": // an alert of TLS, such as that a certificate is required
		return false
	case err == nil, errors.Is(err, ErrDurability), errors.As(err, &certificate), errors.As(err, &record):
		return false
	case errors.As(err, &answered):
		text := answered.Error()
		return !slices.ContainsFunc([]string{"NOAUTH", "WRONGPASS", "NOPERM", "ERR"}, func(code string) bool {
			return strings.HasPrefix(text, code+" ")
		}) || slices.ContainsFunc([]string{"max number of clients", "upstream", "timed out"}, func(words string) bool {
			return strings.Contains(text, words) // the last two of proxies
		})
	}
	return true
}

// Info reads sections of INFO; none is all that there are by default.
func Info(ctx context.Context, node redis.UniversalClient, section ...string) (map[string]string, error) {
	text, err := node.Info(ctx, section...).Result()
	if err != nil {
		return nil, fmt.Errorf("lua: INFO: %w", err)
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			info[name] = value
		}
	}
	return info, nil
}
