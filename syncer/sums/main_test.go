package sums_test

import (
	"testing"

	"dibs/internal/testkit/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }
