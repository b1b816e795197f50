package coalesce_test

import (
	"testing"

	"dibs/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }
