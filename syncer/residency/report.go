package residency

import (
	"context"
	"time"

	"dibs/internal/sleep"
	"dibs/models"
)

// reportsWait is how long a repair waits, after a loss was found, for API processes to report what they answered. They check for a loss
// more often than that.
const reportsWait = 1500 * time.Millisecond

// Generations are the generations of the claim streams that answer: a process that sees one change reports what it answered.
func (h *Hydrator) Generations(ctx context.Context) map[int]string { return h.scripts.Generations(ctx) }

// Loss is what Redis lost of the claim stream of a campaign since the campaign was loaded.
type Loss struct {
	Reason string // "" is no loss
}

// LossOf returns the loss that a campaign in Redis, or lost from it, was in. API processes have had time to report what they answered.
func (h *Hydrator) LossOf(ctx context.Context, c *models.Campaign) (Loss, error) {
	if c.Epoch == 0 || c.Residency == models.ResidencyEvicted || c.Residency == models.ResidencyNone {
		return Loss{}, nil
	}
	seen, err := h.streams.intact(ctx, c.Partition)
	if err != nil || seen.row.Generation == c.StreamGeneration {
		return Loss{}, err
	}
	reported := madeAt(seen.row.Generation).Add(reportsWait)
	if err := sleep.For(ctx, min(reportsWait, time.Until(reported))); err != nil {
		return Loss{}, err
	}
	return Loss{Reason: seen.row.Loss}, nil
}
