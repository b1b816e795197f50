-- +goose Up
-- One campaign's line costs two look-ups by index, however many flushes there are; and whoever may read the tables may read the view,
-- also after a restore without the account that made it.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW stock_watch AS
SELECT c.id AS campaign_id, c.kind, c.status, c.total, c.remaining, c.claimed,
  r.backlog, r.drift, r.at AS compared_at,
  (SELECT f.flushed_at FROM stock_flushes f WHERE f.campaign_id = c.id ORDER BY f.flushed_at DESC LIMIT 1) AS last_flush_at,
  TIMESTAMPDIFF(SECOND, (SELECT f.flushed_at FROM stock_flushes f WHERE f.campaign_id = c.id ORDER BY f.flushed_at DESC LIMIT 1),
    UTC_TIMESTAMP(3)) AS last_flush_age_seconds
FROM campaigns c
LEFT JOIN reconciliations r
  ON r.id = (SELECT x.id FROM reconciliations x WHERE x.campaign_id = c.id ORDER BY x.at DESC, x.id DESC LIMIT 1);
