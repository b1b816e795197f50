package lua_test

import "github.com/redis/go-redis/v9/maintnotifications"

// noMaintenance keeps go-redis from starting goroutines that outlive a
// closed client, see Connect.
func noMaintenance() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}
