package claimed

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dibs/lua"
	"dibs/models"
)

// aStream is the model: all entries of one partition, and how many are acknowledged.
type aStream struct {
	entries []lua.Entry
	acked   int
}

func (s *aStream) append(id, user string, kind models.EventType) {
	n := uint64(len(s.entries) + 1)
	s.entries = append(s.entries, lua.Entry{ID: lua.EntryID{Ms: 1, Seq: n}, Payload: fmt.Sprintf(
		`{"v":1,"type":%q,"id":%q,"campaign_id":"c","user_id":%q,"quantity":1,"seq":%d,"epoch":1,"at":"2027-03-14T15:09:26.535Z"}`, kind, id, user, n)})
}

// first is the first entry that is not acknowledged, or where it would be.
func (s *aStream) first() lua.EntryID { return lua.EntryID{Ms: 1, Seq: uint64(s.acked + 1)} }

// page is up to n entries from the one at from on.
func (s *aStream) page(from lua.EntryID, n int) []lua.Entry {
	at := slices.IndexFunc(s.entries, func(e lua.Entry) bool { return !e.ID.Less(from) })
	if at < 0 {
		return nil
	}
	return s.entries[at:min(at+n, len(s.entries))]
}

// readAll is one refresh.
func readAll(x *index, s *aStream, p, size int) error {
	from := x.advance(p, s.first())
	for {
		page := s.page(from, size)
		var err error
		if from, err = x.add(p, page); err != nil || len(page) < size {
			return err
		}
	}
}

func ids(events []*models.Event) (all []string) {
	for _, e := range events {
		all = append(all, e.ID)
	}
	return all
}

// Whatever comes, is acknowledged and is read in whatever pages: the index holds the claims that are not acknowledged.
func TestIndex_HoldsWhatIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		streams := make([]aStream, rapid.IntRange(1, 3).Draw(t, "partitions"))
		x := newIndex(len(streams), 1000)
		made := 0
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				s := &streams[rapid.IntRange(0, len(streams)-1).Draw(t, "partition")]
				kind := rapid.SampledFrom([]models.EventType{models.EventClaimAccepted, models.EventClaimAccepted, models.EventClaimReleased}).Draw(t, "kind")
				s.append(fmt.Sprint("e", made), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "user"), kind)
				made++
			},
			"acknowledge": func(t *rapid.T) {
				s := &streams[rapid.IntRange(0, len(streams)-1).Draw(t, "partition")]
				s.acked = rapid.IntRange(s.acked, len(s.entries)).Draw(t, "acked")
			},
			"refresh": func(t *rapid.T) {
				size := rapid.IntRange(2, 5).Draw(t, "page")
				want := map[string][]string{}
				for p := range streams {
					require.NoError(t, readAll(x, &streams[p], p, size))
					for _, c := range decodeClaims(streams[p].entries[streams[p].acked:]) {
						if c != nil {
							want[c.UserID] = append(want[c.UserID], c.ID)
							require.Equal(t, c, x.claim(c.ID))
						}
					}
				}
				require.Equal(t, len(want["a"])+len(want["b"]), x.size())
				for _, user := range []string{"a", "b"} {
					require.ElementsMatch(t, want[user], ids(x.ofUser(user)))
				}
				if x.size() == 0 {
					require.Empty(t, x.byUser, "a user without claims takes no memory")
				}
			},
		})
	})
}

func TestIndex_AnEntryThatVanishedIsNoticed(t *testing.T) {
	t.Parallel()
	var s aStream
	for i := range 4 {
		s.append(fmt.Sprint("e", i), "u", models.EventClaimAccepted)
	}
	for name, lose := range map[string]func() aStream{
		"the last one read": func() aStream { return aStream{entries: s.entries[:3]} },
		"all":               func() aStream { return aStream{} },
	} {
		x := newIndex(1, 10)
		require.NoError(t, readAll(x, &s, 0, 10))
		left := lose()
		require.ErrorIs(t, readAll(x, &left, 0, 10), errGone, name)
	}
	x := newIndex(1, 10)
	require.NoError(t, readAll(x, &s, 0, 10))
	s.acked = 4
	left := aStream{entries: nil, acked: 4}
	require.NoError(t, readAll(x, &left, 0, 10), "what is acknowledged may be trimmed")
	require.Zero(t, x.size())
}

func TestIndex_IsBoundedAndGoesOnWhenThereIsRoom(t *testing.T) {
	t.Parallel()
	var s aStream
	for i := range 5 {
		s.append(fmt.Sprint("e", i), "u", models.EventClaimAccepted)
	}
	x := newIndex(1, 3)
	for range 2 {
		require.ErrorIs(t, readAll(x, &s, 0, 2), errFull)
		require.Equal(t, []string{"e0", "e1", "e2"}, ids(x.ofUser("u")))
	}
	s.acked = 2
	require.NoError(t, readAll(x, &s, 0, 2))
	require.Equal(t, []string{"e2", "e3", "e4"}, ids(x.ofUser("u")))
}

func TestIndex_WhatCannotBeReadIsNoClaim(t *testing.T) {
	t.Parallel()
	s := aStream{entries: []lua.Entry{{ID: lua.EntryID{Ms: 1, Seq: 1}, Payload: "poison"}}}
	s.append("e", "u", models.EventClaimAccepted)
	x := newIndex(1, 10)
	require.NoError(t, readAll(x, &s, 0, 10))
	require.Equal(t, []string{"e"}, ids(x.ofUser("u")))
}
