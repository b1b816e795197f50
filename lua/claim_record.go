package lua

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"dibs/models"
)

// In Redis the hash of keys has a record of each claim. The field is the
// claim's id, or the digest of the client's key. The record is, in order:
//
//  - the digest of the body, 8 bytes
//  - with a key, the claim's id, 16 bytes
//  - "seq:at_ms"
//  - ":amount:id" of a packet, or releaseDone

const (
	keyLength    = 16 // bytes of a claim id, and of the digest of an idempotency key
	digestLength = 8  // bytes of the digest of a body
)

const releaseDone = ":r" // ends the record of a released claim

// ClaimRecord is a claim as MySQL has it. Callees do not retain its bytes.
type ClaimRecord struct {
	ID, UserID []byte
	KeyDigest  []byte // see event.Event.Key
	Subjects   models.Subjects
	Seq        int64
	Quantity   int64 // units
	At         time.Time
	Live       bool   // uses stock and limits
	PacketID   []byte // of a packet campaign
	Amount     int64  // of the packet, in minor units
}

// Check reports why a claim can have no record, or nil.
func (p *ClaimRecord) Check() error {
	_, err := appendRecord(nil, p)
	return err
}

// appendRecord appends a claim's field of the
// hash of keys, keyLength bytes, and its record.
func appendRecord(b []byte, p *ClaimRecord) ([]byte, error) {
	id, err := uuid.ParseBytes(p.ID)
	if err != nil {
		return b, fmt.Errorf("lua: claim %.64q: %w", p.ID, err)
	}
	at := len(b)
	if len(p.KeyDigest) == 0 {
		b = append(b, id[:]...)
	} else {
		b, err = base64.RawURLEncoding.AppendDecode(b, p.KeyDigest)
		if err != nil || len(b)-at != keyLength {
			return b[:at], fmt.Errorf("lua: claim %s: key digest %.64q is none", p.ID, p.KeyDigest)
		}
	}
	body := BodyDigestOf(p.UserID, p.Quantity, p.Subjects)
	b = append(b, body[:]...)
	if len(p.KeyDigest) > 0 {
		b = append(b, id[:]...)
	}
	b = strconv.AppendInt(b, p.Seq, 10)
	b = append(b, ':')
	return strconv.AppendInt(b, p.At.UnixMilli(), 10), nil
}

// parseRecord parses the record of the claim that req repeats.
// claim.lua has compared the body.
func parseRecord(m Meta, req *ClaimRequest, record string) (id uuid.UUID, seq, at int64, packet string, err error) {
	text := record
	id = req.ID
	if len(text) >= digestLength {
		text = text[digestLength:]
	}
	if req.Key != "" && len(text) >= keyLength {
		copy(id[:], text)
		text = text[keyLength:]
	}
	if m.Kind != models.KindPacket { // a replay is the first answer, even after a release
		text = strings.TrimSuffix(text, releaseDone)
	}
	seqText, atText, found := strings.Cut(text, ":")
	if m.Kind == models.KindPacket {
		atText, packet, _ = strings.Cut(atText, ":")
	}
	seq, seqErr := strconv.ParseInt(seqText, 10, 64)
	at, atErr := strconv.ParseInt(atText, 10, 64)
	if !found || seqErr != nil || atErr != nil {
		return id, 0, 0, "", badReply("claim", []any{record})
	}
	return id, seq, at, packet, nil
}

// BodyDigest identifies the user, quantity and other subjects of a claim.
type BodyDigest [digestLength]byte

// BodyDigestOf returns the digest of a body.
// Different bodies under one key differ in it.
func BodyDigestOf[ID string | []byte](userID ID, quantity int64, subjects models.Subjects) BodyDigest {
	body := make([]byte, 8, 8+models.UserIDLength)
	binary.BigEndian.PutUint64(body, uint64(quantity))
	body = append(body, userID...)
	if len(subjects) > 0 {
		body = append(append(body, 0), subjects.JSON()...)
	}
	sum := sha256.Sum256(body)
	return BodyDigest(sum[:digestLength])
}
