package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"dibs/models"
)

// packetPostsMax bounds the lists of packets that are held in memory at once.
const packetPostsMax = 2

// postPackets is POST /v1/campaigns/{id}/packets.
func (s *operatorRoutes) postPackets(w http.ResponseWriter, r *http.Request) int {
	if !s.takesPackets(r.Context()) {
		p := &Problem{Code: CodeUnavailable, Detail: "Other packets are being stored. Ask again; nothing was stored.", hangUp: true}
		return p.write(w)
	}
	defer func() { <-s.packetPosts }()
	batch, p := s.readPackets(w, r)
	if p != nil {
		return p.write(w)
	}
	added, p := s.addPackets(r.Context(), r.PathValue("id"), batch)
	if p != nil {
		return p.write(w)
	}
	h, status := w.Header(), http.StatusCreated
	h["Content-Type"] = jsonContentType
	if added.Replayed {
		h[replayedHeader], status = replayedTrue, http.StatusOK
	}
	w.WriteHeader(status)
	_, _ = w.Write([]byte(`{"count":` + strconv.FormatInt(added.Count, 10) + `,"amount":` + strconv.FormatInt(added.Amount, 10) + `}`))
	return status
}

// takesPackets waits for room for one more list, not for ever. Who gets it gives it back.
func (s *operatorRoutes) takesPackets(ctx context.Context) bool {
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
func (s *operatorRoutes) readPackets(w http.ResponseWriter, r *http.Request) (models.PacketBatch, *Problem) {
	if err := models.CheckCampaignID(r.PathValue("id")); err != nil {
		return models.PacketBatch{}, invalid("id", idReason(err))
	}
	key, p := idempotencyKey(r.Header)
	if p != nil {
		return models.PacketBatch{}, p
	}
	control, now := http.NewResponseController(w), time.Now()
	_ = control.SetReadDeadline(now.Add(s.cfg.PacketsReadTimeout)) // without it the server's own timeouts hold
	_ = control.SetWriteDeadline(now.Add(s.cfg.PacketsReadTimeout + s.cfg.PacketsTimeout + s.cfg.WriteTimeout))
	body, p := readJSON(r, nil, PacketsBodyMax)
	if p != nil {
		return models.PacketBatch{}, p
	}
	batch, p := decodePackets(body)
	batch.Key = key
	return batch, p
}

// addPackets stores the packets, and then has them brought to Redis. That is a try: they are safe where they are, and brought
// by others if it fails.
func (s *operatorRoutes) addPackets(ctx context.Context, id string, batch models.PacketBatch) (models.AddedPackets, *Problem) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.PacketsTimeout)
	defer cancel()
	added, err := s.cfg.Campaigns.AddPackets(ctx, id, batch)
	s.cfg.Changed(id)
	switch {
	case errors.Is(err, models.ErrClosed):
		return added, &Problem{Code: CodeClosed}
	case errors.Is(err, models.ErrKeyMismatch):
		return added, &Problem{Code: CodeIdempotencyMismatch}
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

func documentPackets(oapi *huma.OpenAPI, op *huma.Operation) {
	key := &huma.Schema{Type: "string", MinLength: new(1), MaxLength: new(models.IdempotencyKeyLength)}
	op.Parameters = []*huma.Param{
		{Name: "id", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}},
		{Name: "Idempotency-Key", In: "header", Schema: key,
			Description: "printable characters; a split that is sent again without one adds its packets again, a list never does"},
	}
	takes(op, schemaOf[packetsBody](oapi, "PacketsRequest"))
	added := schemaOf[packetsAdded](oapi, "PacketsAdded")
	answers(op, "201", "All packets were added", jsonContentType[0], added)
	r := answers(op, "200", "The same request added them before", jsonContentType[0], added)
	r.Headers = map[string]*huma.Param{replayedHeader: {
		Schema: &huma.Schema{Type: "string", Enum: []any{"true"}}, Description: "this is the first answer, given again",
	}}
}
