package operator

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"dibs/api/wire"
	"dibs/lua"
	"dibs/models"
)

const (
	callTimeout = 5 * time.Second // of one call to Campaigns

	packetPostsMax     = 2 // requests for packets with their body in memory
	packetsReadTimeout = time.Minute
	packetsTimeout     = 2 * time.Minute  // of storing packets; a million need a fraction of it
	answerTimeout      = 30 * time.Second // of writing the answer to packets
)

// Config is what the operators' routes need.
type Config struct {
	Campaigns Campaigns
	Audit     Audit
	Groups    Groups
	Ledger    Ledger
	// State reads a campaign's state in Redis. Errors: lua.ErrAbsent, and
	// those of an unreachable Redis.
	State func(ctx context.Context, campaignID string) (lua.State, error)
	// Load loads a campaign into Redis if that is safe. Errors:
	// models.ErrNotFound; any other leaves Redis unchanged.
	Load func(ctx context.Context, campaignID string) (lua.Meta, error)
	// Delete deletes a campaign without claims. Errors: models.ErrNotFound,
	// models.ErrClaimed; after any other the outcome is unknown.
	Delete func(ctx context.Context, campaignID string) error
	// Changed is called after each attempt to change a campaign.
	Changed func(campaignID string)
	Logger  *slog.Logger
	Clock   func() time.Time
}

// Routes answers the routes of operators.
type Routes struct {
	cfg         Config
	packetPosts *semaphore.Weighted // bodies in memory
	reports     *semaphore.Weighted // slow answers
	postWait    time.Duration       // how long a request for packets waits for a slot
	logSome     rate.Sometimes
}

// New makes Routes.
func New(cfg Config) *Routes {
	return &Routes{
		cfg: cfg, postWait: callTimeout,
		packetPosts: semaphore.NewWeighted(packetPostsMax), reports: semaphore.NewWeighted(reportsMax),
		logSome: rate.Sometimes{Interval: time.Second},
	}
}

// refuseChange converts an error of Campaigns to a refusal. It logs errors
// that the client can't fix.
func (s *Routes) refuseChange(ctx context.Context, verb, campaignID string, err error) *wire.Problem {
	if errors.Is(err, lua.ErrUnavailable) || errors.Is(err, lua.ErrOutcomeUnknown) {
		return s.refuse(ctx, verb, campaignID, err, "The change is stored, but Redis did not take it and still works by the old definition. It "+
			"takes the change some seconds after it is back. To be sure, send the request again: a second time does no harm.")
	}
	return s.refuse(ctx, verb, campaignID, err, "MySQL does not answer, or the settings of this process "+
		"are not those that its data was made with: its log says which. Send the request again: a second time does no harm.")
}

func (s *Routes) refuse(ctx context.Context, verb, campaignID string, err error, away string) *wire.Problem {
	if p := refusedField(err); p != nil {
		return p
	}
	for known, code := range map[error]wire.Code{
		models.ErrNotFound: wire.CodeCampaignNotFound, models.ErrExists: wire.CodeCampaignExists, models.ErrClosed: wire.CodeClosed,
		models.ErrKeyMismatch: wire.CodeIdempotencyMismatch, models.ErrChanged: wire.CodePreconditionFailed,
		models.ErrClaimed: wire.CodeClaimed,
	} {
		if errors.Is(err, known) {
			return wire.Refuse(code)
		}
	}
	s.logSome.Do(func() {
		s.cfg.Logger.WarnContext(ctx, "an operator's request failed; are mysql and redis up?",
			slog.String("verb", verb), slog.String("campaign_id", campaignID), slog.Any("error", err))
	})
	return &wire.Problem{Code: wire.CodeUnavailable, Detail: away}
}

// refusedField converts a *models.FieldError to a refusal; nil for any
// other error.
func refusedField(err error) *wire.Problem {
	if refused, ok := errors.AsType[*models.FieldError](err); ok {
		return wire.Invalid(refused.Field, refused.Reason)
	}
	return nil
}
