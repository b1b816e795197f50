package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"dibs/internal/migrations"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// ErrStaleReads means that a token just written can't be read back, because a
// proxy or driver sends reads to a lagging replica. Rows that seem missing
// may then exist, so MySQL must not be treated as restored.
var ErrStaleReads = errors.New("sqlstore: reads do not see this process's own writes: DIBS_MYSQL_DSN must reach the primary for reads, too")

// settingReadBack is the row of settings that holds the token. Tokens only
// rise, so concurrent processes don't disturb each other.
const settingReadBack = "read_back"

// CheckReads writes a token on one connection and reads it on another.
// Errors: ErrStaleReads, or the database's own. SQLite has no replicas.
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
	writer, err := pool.Conn(ctx) // held, so the read uses another
	if err != nil {
		return fmt.Errorf("sqlstore: token: %w", err)
	}
	defer func() { _ = writer.Close() }() // returns it to the pool
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
