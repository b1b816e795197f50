-- +goose Up
-- Views name their columns, so each new column needs new views.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW defined_lots AS
SELECT l.id, l.campaign_id, l.shard, d.kind, d.name, d.status, l.partition_no, d.shards, l.total, l.redis_total, l.remaining, l.claimed,
  l.synced_seq, l.sold, l.released_claims, l.lost_claims, l.lost_units, l.given_up_claims, l.given_up_units, d.per_user, d.per_user_per_day, d.limits, d.shard_by, d.time_zone, d.starts_at, d.ends_at,
  CASE WHEN l.shard = 0 THEN d.low_stock_at ELSE 0 END AS low_stock_at, d.currency, d.sender_id, d.hold_for_ms, d.hold_max_ms, d.pause_id, d.public, d.note, d.version, d.changes,
  d.created_digest, d.created_at, l.updated_at, l.applied_version, l.untold, l.told_position, l.epoch, l.load_attempts, l.residency,
  l.residency_at, l.generation, l.reload_upto, l.seen_epoch, l.seen_seq, l.seen_units, l.archived_claims, l.archived_units, l.archived_sold,
  l.archived_released,
  d.closed_told_at, d.told_line
FROM lots l JOIN definitions d ON d.campaign_id = l.campaign_id;

CREATE OR REPLACE SQL SECURITY INVOKER VIEW campaigns AS
SELECT id, kind, name, status, partition_no, shards, total, redis_total, remaining,
  claimed, synced_seq, sold, released_claims, lost_claims, lost_units, given_up_claims, given_up_units,
  per_user, per_user_per_day, limits, shard_by, time_zone, starts_at, ends_at,
  low_stock_at, currency, sender_id, hold_for_ms, hold_max_ms, pause_id, public, note, version, changes, created_digest, created_at, updated_at, applied_version, epoch,
  residency, residency_at, generation, archived_claims, archived_units, archived_released, closed_told_at, told_line
FROM defined_lots WHERE shard = 0;

CREATE OR REPLACE SQL SECURITY INVOKER VIEW campaign_shards AS
SELECT id, campaign_id, shard, kind, name, status, partition_no, shards, total, total AS granted, redis_total, remaining, claimed, synced_seq,
  sold, released_claims, lost_claims, lost_units, given_up_claims, given_up_units, per_user, per_user_per_day, limits, shard_by, time_zone, starts_at, ends_at, low_stock_at, currency, sender_id, hold_for_ms, hold_max_ms, pause_id, note,
  version, changes, created_digest, created_at, updated_at, applied_version, epoch, residency,
  residency_at, generation, archived_claims, archived_units, archived_released, closed_told_at, told_line
FROM defined_lots WHERE shard > 0;
