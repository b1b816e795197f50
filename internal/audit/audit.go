// Package audit keeps who changed what: a row of audit_log a change, written in the transaction that makes the change.
package audit

import (
	"context"
	"database/sql"
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

// Put writes that the caller of ctx did something, in the transaction that does it. before and after are marshalled to JSON objects;
// nil is none.
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
	_, err = sqlstore.Exec(ctx, tx, "INSERT INTO audit_log (id, at, actor, request_id, action, campaign_id, `before`, `after`)"+
		" VALUES (?, ?, ?, ?, ?, ?, ?, ?)", id.String(), sqlstore.Now().Format(sqlstore.TimeLayout), sqlstore.Cut(who.Actor, models.UserIDLength),
		sqlstore.Cut(who.RequestID, models.CampaignIDLength), action, campaignID, was, is)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// marshal is a text, as MySQL takes no bytes for JSON.
func marshal(v any) (text sql.NullString, err error) {
	if v == nil {
		return text, nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return text, fmt.Errorf("audit: %w", err)
	}
	return sql.NullString{String: string(b), Valid: true}, nil
}

// Differences are the fields, by their JSON names, in which two values of one type differ.
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

// Note writes what no transaction of MySQL does, such as a sign-in or the use of a token that is refused.
func (l *Log) Note(ctx context.Context, action string, after any) error {
	return l.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error { return Put(ctx, tx, action, "", nil, after) })
}

// List returns the newest entries first, by their time: who can only insert into the table chooses ids as he likes.
func (l *Log) List(ctx context.Context, q models.AuditQuery) (entries []models.AuditEntry, err error) {
	where := []string{"TRUE"}
	var args []any
	if !q.Since.IsZero() {
		where = append(where, "at >= ?")
		args = append(args, q.Since.UTC().Format(sqlstore.TimeLayout))
	}
	if q.CampaignID != "" {
		where = append(where, "campaign_id = ?")
		args = append(args, q.CampaignID)
	}
	if q.Before != "" {
		const at = "(SELECT at FROM audit_log WHERE id = ?)"
		where = append(where, "at <= "+at+" AND (at < "+at+" OR id < ?)")
		args = append(args, q.Before, q.Before, q.Before)
	}
	query := "SELECT id, at, actor, request_id, action, campaign_id, `before`, `after` FROM audit_log WHERE " +
		strings.Join(where, " AND ") + " ORDER BY at DESC, id DESC LIMIT ?"
	err = sqlstore.ScanAll(ctx, l.db, query, append(args, q.Limit), func(scan func(...any) error) error {
		var e models.AuditEntry
		var at time.Time
		var was, is sql.NullString
		if err := scan(&e.ID, &at, &e.Actor, &e.RequestID, &e.Action, &e.CampaignID, &was, &is); err != nil {
			return err
		}
		e.At = models.NewTime(at)
		e.Before = raw(was)
		e.After = raw(is)
		entries = append(entries, e)
		return nil
	})
	if err != nil {
		err = fmt.Errorf("audit: list: %w", err)
	}
	return entries, err
}

func raw(text sql.NullString) json.RawMessage {
	if !text.Valid {
		return nil
	}
	return json.RawMessage(text.String)
}
