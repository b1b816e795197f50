package lua

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

var errClient = errors.New("lua: this kind of client is not known")

func (s *Scripts) nodeOf(ctx context.Context, key string) (*redis.Client, error) {
	switch c := s.rdb.(type) {
	case *redis.Client:
		return c, nil
	case *redis.ClusterClient:
		return c.MasterForKey(ctx, key)
	default:
		return nil, fmt.Errorf("%w: %T", errClient, c)
	}
}

// eachMaster calls do concurrently for every server that has campaigns.
func (s *Scripts) eachMaster(ctx context.Context, do func(ctx context.Context, node *redis.Client) error) error {
	switch c := s.rdb.(type) {
	case *redis.Client:
		return do(ctx, c)
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, do)
	default:
		return fmt.Errorf("%w: %T", errClient, c)
	}
}
