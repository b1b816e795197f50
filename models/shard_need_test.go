package models_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/models"
)

func TestOneOfManyAsksForAShardThatRunsDry(t *testing.T) {
	t.Parallel()
	const pace = 100
	asked := 0
	for remaining := int64(1000); remaining > 0; remaining -= 7 { // calls of all processes, one after the other
		need, lacks := models.NeedAhead(remaining-7, 7, pace)
		require.Equal(t, models.Need{Units: 2*pace + 1, Pace: pace, Ahead: true}, need)
		if lacks {
			asked++
		}
	}
	require.Equal(t, 3, asked, "once a line, in case that one is slow")
	_, lacks := models.NeedAhead(0, 1000, pace)
	require.True(t, lacks, "one large call crosses all lines")
	_, lacks = models.NeedAhead(150, 0, pace)
	require.False(t, lacks, "nobody took anything")
}
