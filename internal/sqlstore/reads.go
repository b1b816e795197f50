package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"dibs/internal/migrations"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// ErrStaleReads says that a token that was just written is not read back: a
// proxy or a driver sends reads to a replica that lags. Whatever MySQL seems to
// lack then may be there: it was not restored.
var ErrStaleReads = errors.New("sqlstore: reads do not see this process's own writes: DIBS_MYSQL_DSN must reach the primary for reads, too")

// settingReadBack names the row of settings that holds the token. Tokens rise,
// so processes that write it at a time don't disturb each other.
const settingReadBack = "read_back"

// CheckReads writes a token on one connection and reads it on another. Errors:
// ErrStaleReads, or the database's own. SQLite has no replicas.
func CheckReads(ctx context.Context, db *gorm.DB) error {
	if db.Name() == migrations.SQLite {
		return nil
	}
	token, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("sqlstore: token: %w", err)
	}
	pool, err := db.DB()
	if err != nil {
		return fmt.Errorf("sqlstore: token: %w", err)
	}
	writer, err := pool.Conn(ctx) // is held, so that the read is on another
	if err != nil {
		return fmt.Errorf("sqlstore: token: %w", err)
	}
	defer func() { _ = writer.Close() }() // gives it back to the pool
	_, err = writer.ExecContext(ctx, "INSERT INTO settings (name, value) VALUES (?, ?)"+
		" ON DUPLICATE KEY UPDATE value = GREATEST(value, VALUES(value))", settingReadBack, token.String())
	if err != nil {
		return fmt.Errorf("sqlstore: write the token: %w", err)
	}
	var read string
	err = db.WithContext(ctx).Raw("SELECT value FROM settings WHERE name = ?", settingReadBack).Scan(&read).Error
	if err != nil {
		return fmt.Errorf("sqlstore: read the token: %w", err)
	}
	if read < token.String() {
		return ErrStaleReads
	}
	return nil
}
