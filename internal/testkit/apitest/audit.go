package apitest

import (
	"context"
	"encoding/json"
	"sync"

	"dibs/internal/caller"
	"dibs/models"
)

// Audit fakes the audit log: preset entries and noted ones.
type Audit struct {
	mu      sync.Mutex
	Entries []models.AuditEntry // newest first
	Asked   []models.AuditQuery
	Fail    error
}

// List returns the entries below q.Before.
func (a *Audit) List(ctx context.Context, q models.AuditQuery) (page []models.AuditEntry, err error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.Asked = append(a.Asked, q)
	for _, e := range a.Entries {
		if (q.Before == "" || e.ID < q.Before) && len(page) < q.Limit {
			page = append(page, e)
		}
	}
	return page, a.Fail
}

// Note stores an entry.
func (a *Audit) Note(ctx context.Context, action string, after any) error {
	text, err := json.Marshal(after)
	a.mu.Lock()
	defer a.mu.Unlock()
	who := caller.Of(ctx)
	a.Entries = append(a.Entries, models.AuditEntry{Action: action, Actor: who.Actor, RequestID: who.RequestID, After: text})
	return err
}

// Noted returns the noted entries.
func (a *Audit) Noted() []models.AuditEntry {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]models.AuditEntry(nil), a.Entries...)
}
