package models_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/models"
)

func TestADurationIsWithinItsBucket(t *testing.T) {
	t.Parallel()
	for took := 64 * time.Microsecond; took < 10*time.Second; took += took / 37 {
		bucket := models.TookBucket(took)
		require.Less(t, took, models.TookBound(bucket))
		require.Greater(t, float64(took), 0.79*float64(models.TookBound(bucket)))
	}
	require.Zero(t, models.TookBucket(-time.Second))
	require.Equal(t, models.TookBuckets-1, models.TookBucket(time.Hour))
}
