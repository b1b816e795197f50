package testenv

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/machine"
)

// errNoRepair means that the server is no local program, or its
// tool is missing.
var errNoRepair = errors.New("testenv: no tool to repair an append-only file")

// StartRepaired is Start for a server with "aof-load-truncated no". If a
// crash in the middle of a write prevents the start, it repairs the file with
// redis-check-aof, as an operator would, and starts again. It returns the
// number of repairs: 0 or 1.
func (r *RedisServer) StartRepaired() (repairs int) {
	r.t.Helper()
	err := r.srv.Start()
	if err == nil {
		return 0
	}
	require.ErrorContains(r.t, err, "Unexpected end of file")
	require.NoError(r.t, repairAOF(r.srv.Host))
	r.Start()
	return 1
}

func repairAOF(at machine.Host) error {
	p, here := at.(machine.Process)
	if !here {
		return errNoRepair
	}
	// installed side by side, under one name each
	tool := strings.Replace(p.Program, "-server", "-check-aof", 1)
	if tool == p.Program {
		return errNoRepair
	}
	manifest := filepath.Join(p.Folder, "appendonlydir", "appendonly.aof.manifest")
	fix := exec.Command(tool, "--fix", manifest) //nolint:noctx // it reads the file and ends
	fix.Stdin = strings.NewReader("y\n")
	out, err := fix.CombinedOutput()
	if err != nil {
		return errors.Join(err, errors.New("testenv: "+string(out)))
	}
	return nil
}
