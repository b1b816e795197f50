package operator

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"dibs/api/wire"
	"dibs/models"
)

// packetPostsMax bounds the lists of packets that are held in memory at once.
const packetPostsMax = 2

// postPackets is POST /v1/campaigns/{id}/packets.
func (s *Routes) PostPackets(w http.ResponseWriter, r *http.Request) int {
	if !s.takesPackets(r.Context()) {
		p := &wire.Problem{Code: wire.CodeUnavailable, Detail: "Other packets are being stored. Ask again; nothing was stored.", HangUp: true}
		return p.Write(w)
	}
	defer func() { <-s.packetPosts }()
	batch, p := s.readPackets(w, r)
	if p != nil {
		return p.Write(w)
	}
	added, p := s.addPackets(r.Context(), r.PathValue("id"), batch)
	if p != nil {
		return p.Write(w)
	}
	h, status := w.Header(), http.StatusCreated
	h["Content-Type"] = wire.JSONContentType
	if added.Replayed {
		h[wire.ReplayedHeader], status = wire.ReplayedTrue, http.StatusOK
	}
	w.WriteHeader(status)
	_, _ = w.Write([]byte(`{"count":` + strconv.FormatInt(added.Count, 10) + `,"amount":` + strconv.FormatInt(added.Amount, 10) + `}`))
	return status
}

// takesPackets waits for room for one more list, not for ever. Who gets it gives it back.
func (s *Routes) takesPackets(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.AdminTimeout)
	defer cancel()
	select {
	case s.packetPosts <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// readPackets reads and checks everything that a request for packets brings along. It gives the body and the answer more time
// than others have.
func (s *Routes) readPackets(w http.ResponseWriter, r *http.Request) (models.PacketBatch, *wire.Problem) {
	if err := models.CheckCampaignID(r.PathValue("id")); err != nil {
		return models.PacketBatch{}, wire.Invalid("id", wire.IDReason(err))
	}
	key, p := wire.IdempotencyKey(r.Header)
	if p != nil {
		return models.PacketBatch{}, p
	}
	control, now := http.NewResponseController(w), time.Now()
	_ = control.SetReadDeadline(now.Add(s.cfg.PacketsReadTimeout)) // without it the server's own timeouts hold
	_ = control.SetWriteDeadline(now.Add(s.cfg.PacketsReadTimeout + s.cfg.PacketsTimeout + s.cfg.WriteTimeout))
	body, p := wire.ReadJSON(r, nil, PacketsBodyMax)
	if p != nil {
		return models.PacketBatch{}, p
	}
	batch, p := decodePackets(body)
	batch.Key = key
	return batch, p
}

// addPackets stores the packets, and then has them brought to Redis. That is a try: they are safe where they are, and brought
// by others if it fails.
func (s *Routes) addPackets(ctx context.Context, id string, batch models.PacketBatch) (models.AddedPackets, *wire.Problem) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.PacketsTimeout)
	defer cancel()
	added, err := s.cfg.Campaigns.AddPackets(ctx, id, batch)
	s.cfg.Changed(id)
	switch {
	case errors.Is(err, models.ErrClosed):
		return added, &wire.Problem{Code: wire.CodeClosed}
	case errors.Is(err, models.ErrKeyMismatch):
		return added, &wire.Problem{Code: wire.CodeIdempotencyMismatch}
	case err != nil:
		return added, s.adminProblem("add packets to", id, err)
	}
	if _, err := s.cfg.Hydrate(ctx, id); err != nil {
		s.complain.Do(func() {
			s.log.Warn("packets are stored and not in redis yet", slog.String("campaign_id", id), slog.Any("error", err))
		})
	}
	return added, nil
}

func DocumentPackets(oapi *huma.OpenAPI, op *huma.Operation) {
	key := &huma.Schema{Type: "string", MinLength: new(1), MaxLength: new(models.IdempotencyKeyLength)}
	op.Parameters = []*huma.Param{
		{Name: "id", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}},
		{Name: "Idempotency-Key", In: "header", Schema: key,
			Description: "printable characters; a split that is sent again without one adds its packets again, a list never does"},
	}
	wire.Takes(op, wire.SchemaOf[packetsBody](oapi, "PacketsRequest"))
	added := wire.SchemaOf[packetsAdded](oapi, "PacketsAdded")
	wire.Answers(op, "201", "All packets were added", wire.JSONContentType[0], added)
	r := wire.Answers(op, "200", "The same request added them before", wire.JSONContentType[0], added)
	r.Headers = map[string]*huma.Param{wire.ReplayedHeader: {
		Schema: &huma.Schema{Type: "string", Enum: []any{"true"}}, Description: "this is the first answer, given again",
	}}
}
