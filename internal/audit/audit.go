// Package audit records who changed what: a row of audit_log per
// change, written in the change's transaction.
package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"dibs/internal/caller"
	"dibs/internal/sqlstore"
	"dibs/models"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// auditRow is a row of audit_log. Before and After are text,
// because MySQL takes no bytes for JSON.
type auditRow struct {
	ID         string `gorm:"primaryKey"`
	At         time.Time
	Actor      string
	RequestID  string
	Action     string
	CampaignID string
	Before     *string
	After      *string
}

// TableName names the table for gorm.
func (auditRow) TableName() string { return "audit_log" }

// Parked is the parked messages that an action is about: all of a
// group, or of an endpoint, unless ID names one.
type Parked struct {
	Group    string `json:"group"`
	Endpoint string `json:"endpoint,omitempty"`
	ID       string `json:"id,omitempty"`
}

// Put records an action of ctx's caller, in the action's transaction. before
// and after become JSON objects; nil is none.
func Put(ctx context.Context, tx *gorm.DB, action, campaignID string, before, after any) error {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	was, err := marshal(before)
	if err != nil {
		return err
	}
	is, err := marshal(after)
	if err != nil {
		return err
	}
	who := caller.Of(ctx)
	row := auditRow{
		ID: id.String(), At: sqlstore.Now(), Actor: sqlstore.Cut(who.Actor, models.UserIDLength),
		RequestID: sqlstore.Cut(who.RequestID, models.CampaignIDLength), Action: action, CampaignID: campaignID,
		Before: was, After: is,
	}
	if err := tx.WithContext(ctx).Create(&row).Error; err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

func marshal(v any) (*string, error) {
	if v == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	return new(string(b)), nil
}

// Differences returns the fields, by JSON name, in which two
// values of one type differ.
func Differences[T any](before, after T) (was, is map[string]any, err error) {
	was, err = fields(before)
	if err != nil {
		return nil, nil, err
	}
	is, err = fields(after)
	if err != nil {
		return nil, nil, err
	}
	for name := range is {
		if _, there := was[name]; !there {
			was[name] = nil
		}
	}
	for name, value := range was {
		if _, there := is[name]; !there {
			is[name] = nil
		}
		if reflect.DeepEqual(value, is[name]) {
			delete(was, name)
			delete(is, name)
		}
	}
	return was, is, nil
}

func fields(v any) (all map[string]any, err error) {
	text, err := json.Marshal(v)
	if err == nil {
		d := json.NewDecoder(strings.NewReader(string(text)))
		d.UseNumber() // a float would round units
		err = d.Decode(&all)
	}
	if err != nil {
		err = fmt.Errorf("audit: %w", err)
	}
	return all, err
}

// Log reads and writes the audit log of a database.
type Log struct{ db *gorm.DB }

// NewLog makes a Log.
func NewLog(db *gorm.DB) *Log { return &Log{db} }

// Note records what no transaction of MySQL does, such as a
// sign-in or the use of a refused token.
func (l *Log) Note(ctx context.Context, action string, after any) error {
	return Put(ctx, l.db, action, "", nil, after)
}

// List returns entries by time, newest first. It does not sort by id: an
// attacker with only INSERT rights could choose ids. Errors: models.ErrID if
// there is no entry q.Before, as in a restored MySQL: none would be older.
func (l *Log) List(ctx context.Context, q models.AuditQuery) (entries []models.AuditEntry, err error) {
	find := l.db.WithContext(ctx).Order("at DESC, id DESC").Limit(q.Limit)
	if !q.Since.IsZero() {
		find = find.Where("at >= ?", q.Since.UTC().Format(sqlstore.TimeLayout))
	}
	if q.CampaignID != "" {
		find = find.Where("campaign_id = ?", q.CampaignID)
	}
	if q.Before != "" {
		var n int64
		if err := l.db.WithContext(ctx).Model(&auditRow{}).Where("id = ?", q.Before).Count(&n).Error; err != nil {
			return nil, fmt.Errorf("audit: list: %w", err)
		}
		if n == 0 {
			return nil, fmt.Errorf("audit: %w: there is no entry %s", models.ErrID, q.Before)
		}
		const at = "(SELECT at FROM audit_log WHERE id = ?)"
		find = find.Where("at <= "+at+" AND (at < "+at+" OR id < ?)", q.Before, q.Before, q.Before)
	}
	var rows []auditRow
	if err := find.Find(&rows).Error; err != nil {
		return nil, fmt.Errorf("audit: list: %w", err)
	}
	for _, r := range rows {
		entries = append(entries, models.AuditEntry{
			ID: r.ID, At: models.NewTime(r.At), Actor: r.Actor, RequestID: r.RequestID, Action: r.Action,
			CampaignID: r.CampaignID, Before: raw(r.Before), After: raw(r.After),
		})
	}
	return entries, nil
}

func raw(text *string) json.RawMessage {
	if text == nil {
		return nil
	}
	return json.RawMessage(*text)
}
