-- +goose Up
-- One campaign's line costs two look-ups by index, however many flushes there are.
DROP VIEW IF EXISTS stock_watch;
CREATE VIEW stock_watch AS
SELECT c.id AS campaign_id, c.kind, c.status, c.total, c.remaining, c.claimed,
  r.backlog, r.drift, r.at AS compared_at,
  (SELECT f.flushed_at FROM stock_flushes f WHERE f.campaign_id = c.id ORDER BY f.flushed_at DESC LIMIT 1) AS last_flush_at,
  CAST((julianday('now') - julianday((SELECT f.flushed_at FROM stock_flushes f WHERE f.campaign_id = c.id
    ORDER BY f.flushed_at DESC LIMIT 1))) * 86400 AS INTEGER) AS last_flush_age_seconds
FROM campaigns c
LEFT JOIN reconciliations r
  ON r.id = (SELECT x.id FROM reconciliations x WHERE x.campaign_id = c.id ORDER BY x.at DESC, x.id DESC LIMIT 1);
