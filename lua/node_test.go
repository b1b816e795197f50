package lua_test

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/lua"
)

// replyError is what a server, or a proxy before it, answers.
type replyError string

func (a replyError) Error() string { return string(a) }
func (replyError) RedisError()     {}

func TestMayPass_OnlyWhatAPersonMustMendDoesNot(t *testing.T) {
	t.Parallel()
	for text, passes := range map[replyError]bool{
		"NOAUTH Authentication required.": false, "WRONGPASS invalid username-password pair": false, "NOPERM this user has no permissions": false,
		"ERR DB index is out of range": false, "ERR unknown command 'evalsha'": false,
		"LOADING Redis is loading the dataset in memory": true, "CLUSTERDOWN The cluster is down": true, "ERR max number of clients reached": true,
		"ERR upstream failure": true, "ERR Connection timed out": true, "upstream failure": true,
	} {
		require.Equal(t, passes, lua.MayPass(fmt.Errorf("wrapped: %w", text)), string(text))
	}
	for op, passes := range map[string]bool{"remote error": false, "dial": true} { // the former is an alert of TLS
		require.Equal(t, passes, lua.MayPass(&net.OpError{Op: op, Err: errors.New("tls: certificate required")}), op)
	}
}
