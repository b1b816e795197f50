package operator

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"dibs/api/wire"
	"dibs/models"
)

// PostPackets is POST /v1/campaigns/{id}/packets.
func (s *Routes) PostPackets(w http.ResponseWriter, r *http.Request) int {
	turn, cancel := context.WithTimeout(r.Context(), s.postWait)
	defer cancel()
	if s.packetPosts.Acquire(turn, 1) != nil {
		p := &wire.Problem{
			Code: wire.CodeUnavailable, Detail: "Other packets are being stored. Nothing of this request was stored: send it again.", HangUp: true,
		}
		return p.Write(w)
	}
	defer s.packetPosts.Release(1)
	batch, p := readPackets(w, r)
	if p != nil {
		return p.Write(w)
	}
	added, p := s.addPackets(r.Context(), r.PathValue("id"), batch)
	if p != nil {
		return p.Write(w)
	}
	h := w.Header()
	status := http.StatusCreated
	h["Content-Type"] = wire.JSONContentType
	if added.Replayed {
		status = http.StatusOK
		wire.SetReplayed(h)
	}
	w.WriteHeader(status)
	_, _ = w.Write([]byte(`{"count":` + strconv.FormatInt(added.Count, 10) + `,"amount":` + strconv.FormatInt(added.Amount, 10) + `}`))
	return status
}

// readPackets reads and checks a request for packets. It gets longer
// timeouts than other requests.
func readPackets(w http.ResponseWriter, r *http.Request) (models.PacketBatch, *wire.Problem) {
	if p := wire.InvalidID("id", models.CheckCampaignID(r.PathValue("id"))); p != nil {
		return models.PacketBatch{}, p
	}
	key, p := wire.IdempotencyKey(r.Header)
	if p != nil {
		return models.PacketBatch{}, p
	}
	control := http.NewResponseController(w)
	now := time.Now()
	// where it isn't supported the server's timeouts apply
	_ = control.SetReadDeadline(now.Add(packetsReadTimeout))
	_ = control.SetWriteDeadline(now.Add(packetsReadTimeout + packetsTimeout + answerTimeout))
	var body bytes.Buffer
	if p := wire.ReadBody(r, &body, PacketsBodyMax); p != nil {
		return models.PacketBatch{}, p
	}
	batch, p := decodePackets(body.Bytes())
	if p == nil && batch.Split != nil {
		p = wire.RequiredKey(key, "is required for a split: sent again without one it would add its packets again")
	}
	batch.Key = key
	return batch, p
}

// addPackets stores packets and loads the campaign into Redis. If the load
// fails, the packets are safe in MySQL, and the syncer loads them later.
func (s *Routes) addPackets(ctx context.Context, id string, batch models.PacketBatch) (models.AddedPackets, *wire.Problem) {
	ctx, cancel := context.WithTimeout(ctx, packetsTimeout)
	defer cancel()
	added, err := s.cfg.Campaigns.AddPackets(ctx, id, batch)
	s.cfg.Changed(id)
	if err != nil {
		return added, s.refuseChange(ctx, "add packets", id, err)
	}
	if _, err := s.cfg.Load(ctx, id); err != nil {
		s.logSome.Do(func() {
			s.cfg.Logger.WarnContext(ctx, "packets are stored but not in redis yet; the syncer brings them there",
				slog.String("campaign_id", id), slog.Any("error", err))
		})
	}
	return added, nil
}

// DocumentPackets describes PostPackets.
func DocumentPackets(oapi *huma.OpenAPI, op *huma.Operation) {
	op.Parameters = []*huma.Param{
		wire.IDParam(),
		wire.KeyParam("characters that can be seen, as in user_id; required for a split, so that a retry adds nothing; " +
			"a list is recognised by its content"),
	}
	wire.DocumentBody(op, wire.SchemaOf[packetsBody](oapi))
	added := wire.SchemaOf[packetsAdded](oapi)
	wire.DocumentAnswer(op, "201", "All packets were added", wire.JSONContentType[0], added)
	r := wire.DocumentAnswer(op, "200", "The same request added them before", wire.JSONContentType[0], added)
	wire.DocumentReplay(r, "this is the first answer, given again")
}
