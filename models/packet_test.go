package models_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/models"
)

func list(n int) []models.Packet {
	all := make([]models.Packet, n)
	for i := range all {
		all[i] = models.Packet{ID: fmt.Sprint("p", i), Amount: 1}
	}
	return all
}

func TestAListOfPacketsEndsAtItsBounds(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		list    []models.Packet
		refused string
		words   string
	}{
		"none":              {nil, "packets", "1 to 100000"},
		"all that may be":   {list(models.PacketListMax), "", ""},
		"one more":          {list(models.PacketListMax + 1), "packets", "1 to 100000"},
		"larger":            {[]models.Packet{{ID: "a", Amount: models.AmountMax + 1}}, "packets[0].amount", "999999999999999"},
		"a sum beyond":      {[]models.Packet{{ID: "a", Amount: models.AmountMax}, {ID: "b", Amount: 1}}, "packets[1].amount", "add up"},
		"an id twice":       {[]models.Packet{{ID: "a", Amount: 1}, {ID: "b", Amount: 1}, {ID: "b", Amount: 2}}, "packets[2].id", "packets[1]"},
		"a blank in an id":  {[]models.Packet{{ID: "a b", Amount: 1}}, "packets[0].id", "A-Z"},
		"the id of a split": {[]models.Packet{{ID: "_00000001", Amount: 1}}, "packets[0].id", "split"},
		"like one, longer":  {[]models.Packet{{ID: "_000000001", Amount: 1}}, "", ""},
	} {
		batch := models.PacketBatch{List: one.list}
		err := batch.CheckList()
		requireField(t, one.refused, err, name)
		if err != nil {
			require.ErrorContains(t, err, one.words, name)
			require.NotContains(t, err.Error(), models.ErrID.Error(), "the sentinel's words are for programs")
		}
	}
}

func TestIDsOfASplitSortAsItsPositionsDo(t *testing.T) {
	t.Parallel()
	var ids []string
	for _, position := range []int64{1, 9, 10, 99, 100, 99_999, 100_000, models.PacketsMax - 1, models.PacketsMax} {
		ids = append(ids, models.SplitPacketID(position))
		batch := models.PacketBatch{List: []models.Packet{{ID: ids[len(ids)-1], Amount: 1}}}
		requireField(t, "packets[0].id", batch.CheckList(), "it is for splits alone")
	}
	require.Equal(t, "_00000001", ids[0])
	require.IsIncreasing(t, ids)
}
