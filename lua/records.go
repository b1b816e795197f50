package lua

import (
	"context"
	"encoding/base64"
	"regexp"
	"strconv"

	"github.com/google/uuid"
)

// recordsAtOnce is how many records of claims one call reads.
const recordsAtOnce = 500

// RecordedClaim is what the record of a claim in Redis says.
type RecordedClaim struct {
	ID        string
	Body      BodyDigest
	KeyDigest string // see models.Event.Key
	Seq       int64
	AtMs      int64 // milliseconds since 1970
	PacketID  string
	Amount    int64 // of the packet, in minor units
	Released  bool
}

// ScanClaimRecords calls each for pages of the claims that Redis holds records of, in no order. A record may come twice, and one that is
// written in the meantime may not come. Errors as State, and those of each.
func (s *Scripts) ScanClaimRecords(ctx context.Context, campaignID string, each func([]RecordedClaim) error) error {
	return s.scanHash(ctx, s.KeysOf(campaignID).Keys, recordsAtOnce, func(page []string) error {
		claims := make([]RecordedClaim, 0, len(page)/2)
		for i := 0; i+1 < len(page); i += 2 {
			if c, ok := readRecord(page[i], page[i+1]); ok {
				claims = append(claims, c)
			}
		}
		return each(claims)
	})
}

// afterHead is what follows the head of a record: seq, time, of a packet its amount and id, and the state of a release.
var afterHead = regexp.MustCompile(`^(\d+):(\d+)(?::(\d+):([\w.-]+)|(:[br]))?$`)

// readRecord reads what appendRecord and claim.lua write; false is a damaged record.
func readRecord(field, record string) (c RecordedClaim, ok bool) {
	if len(field) != keyLength || len(record) < digestLength {
		return c, false
	}
	copy(c.Body[:], record)
	id := field
	text := record[digestLength:]
	found := afterHead.FindStringSubmatch(text)
	if found == nil && len(text) > keyLength { // under a client's key
		c.KeyDigest = base64.RawURLEncoding.EncodeToString([]byte(field))
		id = text[:keyLength]
		found = afterHead.FindStringSubmatch(text[keyLength:])
	}
	if found == nil {
		return c, false
	}
	c.ID = uuid.UUID([]byte(id)).String()
	var err [3]error
	c.Seq, err[0] = strconv.ParseInt(found[1], 10, 64)
	c.AtMs, err[1] = strconv.ParseInt(found[2], 10, 64)
	c.PacketID = found[4]
	if c.PacketID != "" {
		c.Amount, err[2] = strconv.ParseInt(found[3], 10, 64)
	}
	c.Released = found[5] != ""
	return c, err == [3]error{}
}
