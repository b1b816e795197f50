package console

import (
	"context"
	"net/http"
	"time"

	"dibs/lua"
)

// PartsOf is how the parts of Dibs are.
type PartsOf struct {
	Redis   Server
	MySQL   Server
	Leader  string // the syncer that leads; "": none
	Unknown bool   // Redis was not asked to the end: who leads and reads is not known
	Streams []Stream
}

// Server is how one server is.
type Server struct {
	Away   string // why it does not answer; "": it does
	Took   time.Duration
	Memory lua.Health // of Redis
	InUse  int        // of MySQL: connections of this process
	Conns  int        // and the most there may be
}

// Stream is a claim stream and who reads it.
type Stream struct {
	Partition int
	Groups    []Group
}

// Group is a consumer group and its readers.
type Group struct {
	lua.Group

	Oldest    time.Duration // for how long the oldest entry that was handed out waits; 0: none
	Consumers []lua.Consumer
}

// partsTimeout bounds the look at the parts.
const partsTimeout = 2 * time.Second

type overviewPage struct {
	Parts PartsOf
}

func (c *Console) getOverview(w http.ResponseWriter, r *http.Request, s *session) {
	c.show(w, s, http.StatusOK, "overview", overviewPage{Parts: c.parts(r.Context())})
}

func (c *Console) getParts(w http.ResponseWriter, r *http.Request, _ *session) {
	c.fragment(w, "parts", c.parts(r.Context()))
}

func (c *Console) parts(ctx context.Context) PartsOf {
	ctx, cancel := context.WithTimeout(ctx, partsTimeout)
	defer cancel()
	return c.cfg.Parts(ctx)
}

// Streams is the part of lua.Scripts that says how Redis is and who reads.
type Streams interface {
	Partitions() int
	Groups(ctx context.Context, partition int) ([]lua.Group, error)
	Consumers(ctx context.Context, partition int, group string) ([]lua.Consumer, error)
	Leader(ctx context.Context) (string, error)
	Health(ctx context.Context) (lua.Health, error)
}

var _ Streams = (*lua.Scripts)(nil)

// LookAt makes a function for Config.Parts. mysql says how MySQL is.
func LookAt(streams Streams, mysql func(ctx context.Context) Server) func(context.Context) PartsOf {
	return func(ctx context.Context) PartsOf {
		p := PartsOf{MySQL: mysql(ctx)}
		health, err := streams.Health(ctx)
		if err != nil {
			p.Redis.Away, p.Unknown = "does not answer", true
			return p
		}
		p.Redis.Took, p.Redis.Memory = health.Took, health
		if p.Leader, err = streams.Leader(ctx); err != nil {
			p.Unknown = true
		}
		for partition := range streams.Partitions() {
			groups, err := groupsOf(ctx, streams, partition)
			if err != nil {
				p.Unknown = true
				return p
			}
			p.Streams = append(p.Streams, Stream{partition, groups})
		}
		return p
	}
}

func groupsOf(ctx context.Context, streams Streams, partition int) ([]Group, error) {
	found, err := streams.Groups(ctx, partition)
	if err != nil {
		return nil, err
	}
	groups := make([]Group, len(found))
	for i := range found {
		groups[i].Group = found[i]
		if found[i].Pending > 0 {
			groups[i].Oldest = found[i].Oldest.Age(time.Now())
		}
		if groups[i].Consumers, err = streams.Consumers(ctx, partition, found[i].Name); err != nil {
			return nil, err
		}
	}
	return groups, nil
}
