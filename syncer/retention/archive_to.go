package retention

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"dibs/internal/sqlstore"
	"dibs/models"
)

// ArchiveTable is the table claims_archive.
type ArchiveTable struct{}

func (ArchiveTable) String() string { return "claims_archive" }

// Put copies the rows, within the server.
func (ArchiveTable) Put(ctx context.Context, tx *sqlstore.Tx, claims []models.ClaimRow) error {
	args := []any{sqlstore.Now().Format(sqlstore.TimeLayout)}
	for i := range claims {
		args = append(args, claims[i].ID)
	}

	query := "INSERT INTO claims_archive (" + archiveColumns + ", archived_at) SELECT " + archiveColumns + ", ?" +
		" FROM claims WHERE id IN " + sqlstore.Marks(len(claims))
	_, err := tx.ExecContext(ctx, query, args...)
	return err
}

// ArchiveFile is a file of claims, a line of JSON each, with the columns of the table as names.
type ArchiveFile struct {
	f    *os.File
	last map[string]bool // ids of the newest lines: a process that died may have left their claims in the table, too
}

// archivedClaim is a line of the file.
type archivedClaim struct {
	models.ClaimRow

	ClaimedAt  models.Time  `json:"claimed_at"`
	SyncedAt   models.Time  `json:"synced_at"`
	ResolvedAt *models.Time `json:"resolved_at"`
}

func newArchivedClaim(c *models.ClaimRow) archivedClaim {
	line := archivedClaim{ClaimRow: *c, ClaimedAt: models.NewTime(c.ClaimedAt), SyncedAt: models.NewTime(c.SyncedAt)}
	if c.ResolvedAt != nil {
		line.ResolvedAt = new(models.NewTime(*c.ResolvedAt))
	}
	return line
}

// OpenArchiveFile opens a file to add to, or makes it. Half a line at its end, which a process that died left, is cut off: its
// claim is in the table still.
func OpenArchiveFile(name string) (*ArchiveFile, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the operator names it
	if err != nil {
		return nil, fmt.Errorf("retention: archive: %w", err)
	}
	a := &ArchiveFile{f: f, last: make(map[string]bool)}
	if err := a.readLast(); err != nil {
		return nil, errors.Join(fmt.Errorf("retention: archive: %s: %w", name, err), f.Close())
	}
	return a, nil
}

func (a *ArchiveFile) String() string { return a.f.Name() }

// Close closes the file.
func (a *ArchiveFile) Close() error { return a.f.Close() }

// readLast goes over the file once, keeps the ids of the newest lines, and stands at the end of the last whole one.
func (a *ArchiveFile) readLast() error {
	var lines [][]byte
	var end int64
	for r := bufio.NewReaderSize(a.f, 1<<20); ; {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		end += int64(len(line))
		lines = append(lines, line)
		if len(lines) == 2*archivePage {
			lines = append([][]byte(nil), lines[archivePage:]...)
		}
	}
	for _, line := range lines[max(0, len(lines)-archivePage):] {
		var c archivedClaim
		if err := json.Unmarshal(line, &c); err != nil || c.ID == "" {
			return fmt.Errorf("retention: it holds lines that are no archived claims: %.80q", line)
		}
		a.last[c.ID] = true
	}
	if err := a.f.Truncate(end); err != nil {
		return err
	}
	_, err := a.f.Seek(end, io.SeekStart)
	return err
}

// Put adds the claims that the file does not have, and waits until they are on disk.
func (a *ArchiveFile) Put(_ context.Context, _ *sqlstore.Tx, claims []models.ClaimRow) error {
	var lines bytes.Buffer
	now := make(map[string]bool, len(claims))
	for i := range claims {
		now[claims[i].ID] = true
		if a.last[claims[i].ID] {
			continue
		}
		if err := json.NewEncoder(&lines).Encode(newArchivedClaim(&claims[i])); err != nil {
			return sqlstore.Final(fmt.Errorf("retention: archive: %w", err))
		}
	}
	_, err := a.f.Write(lines.Bytes())
	if err == nil {
		err = a.f.Sync()
	}
	if err != nil {
		return sqlstore.Final(fmt.Errorf("retention: archive: %w", err))
	}
	a.last = now // they come again after a transaction that failed
	return nil
}
