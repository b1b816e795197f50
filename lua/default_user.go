package lua

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// adviceDefaultUser is what an operator does about a default user that may not write.
const adviceDefaultUser = "Redis has an append-only file, and the default user of its ACL is off or may not do " +
	"everything: when it starts again, Redis 7.0 and Valkey 8.0.1 leave out what every script wrote, " +
	"and so every claim. Give that user a long password instead: " +
	"user default on >PASSWORD ~* &* +@all"

// DefaultUserAdvice is an advice if a server would forget its claims at its next start although it has them in its append-only file; "" is
// none. Such servers load the file in the name of the default user, and what a script wrote stands there as a transaction
// (valkey-io/valkey#3983, redis/redis#14541).
func DefaultUserAdvice(ctx context.Context, node redis.UniversalClient) (string, error) {
	info, err := Info(ctx, node, "persistence")
	if err == nil && IsLoading(info) {
		err = fmt.Errorf("%w: it loads its data", ErrNotNow)
	}
	if err != nil || info["aof_enabled"] != "1" {
		return "", err
	}
	reply, err := node.Do(ctx, "acl", "getuser", "default").Slice()
	switch {
	case err != nil && isRefusal(err): // a managed server: it can't be checked
		return "", nil
	case err != nil:
		return "", fmt.Errorf("lua: ACL GETUSER: %w", err)
	}
	user := map[any]any{}
	for i := 0; i+1 < len(reply); i += 2 {
		user[reply[i]] = reply[i+1]
	}
	flags, _ := user["flags"].([]any)
	commands, _ := user["commands"].(string)
	if slices.Contains(flags, any("off")) || strings.HasPrefix(commands, "-@all") || user["keys"] == "" {
		return adviceDefaultUser, nil
	}
	return "", nil
}
