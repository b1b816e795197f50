-- claim.lua takes units of one campaign for a batch of claims and tells the claim stream, in one step.
--
-- For each claim, in order: a known key is replayed; else status, window, stock and the user's limits are checked; else it
-- is taken. Nothing is written before everything is checked, and after the first write nothing can fail: types are
-- checked first, and the first write is an XADD, which Redis refuses whole when it is out of memory, a replica or unable
-- to persist.
--
-- KEYS[1] state   hash    definition and counters of the campaign
-- KEYS[2] users   hash    user id -> units used: "bucket:units" for each limit, joined by ";"
-- KEYS[3] keys    hash    16 bytes, digest of the client's key or else the claim id -> record of the claim, for replay
-- KEYS[4] stream  stream  the claim stream of the partition
--
-- ARGV[1]     now_ms        milliseconds since 1970; empty: this server's clock
-- ARGV[2]     first_day     number of the first day below, days since 1970-01-01 in the campaign's zone
-- ARGV[3..7]  day_start_ms  when that day and the four after it begin
-- ARGV[8..]   six a claim:  user id; quantity in units; key, 16 bytes; record head, whose first 8 bytes are the digest of
--             the body; claim id; event head, the JSON up to seq
--
-- Reply {0, now_ms, remaining, then two a claim: code, value}
--   0 claimed: seq · 1 replayed: record · 2 idempotency_mismatch · 3 paused · 4 closed · 5 not_started · 6 ended
--   7 sold_out · 8 user_limit · 9 user_day_limit · 10 damaged: this user's record
-- or {1} absent: the campaign is not here · {2, which} damaged: the key of that number, nothing was changed
-- or {3, now_ms} clock: now is outside of the days above
local state_key, users_key, keys_key, stream_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local FIRST_CLAIM, PER_CLAIM, DAYS = 8, 6, 4

local function type_of(key) return redis.call('TYPE', key)['ok'] end
local state_type, users_type, keys_type, stream_type = type_of(state_key), type_of(users_key), type_of(keys_key), type_of(stream_key)
if state_type == 'none' and users_type == 'none' and keys_type == 'none' then return {1} end
if state_type ~= 'hash' then return {2, 1} end
if users_type ~= 'hash' and users_type ~= 'none' then return {2, 2} end
if keys_type ~= 'hash' and keys_type ~= 'none' then return {2, 3} end
if stream_type ~= 'stream' and stream_type ~= 'none' then return {2, 4} end

local fields = redis.call('HMGET', state_key, 'status', 'total', 'taken', 'seq', 'epoch', 'starts_at_ms', 'ends_at_ms',
  'per_user', 'per_user_per_day')
local status, epoch = fields[1], fields[5]
local total, taken, seq = tonumber(fields[2]), tonumber(fields[3]), tonumber(fields[4])
local starts_at_ms, ends_at_ms = tonumber(fields[6]), tonumber(fields[7])
local per_user, per_user_per_day = tonumber(fields[8]), tonumber(fields[9])
if not (status and epoch and total and taken and seq and starts_at_ms and ends_at_ms and per_user and per_user_per_day) then
  return {2, 1}
end
-- Claims were made, so both of these were written. A part that is gone is a part that was lost.
if seq > 0 and users_type == 'none' then return {2, 2} end
if seq > 0 and keys_type == 'none' then return {2, 3} end

local now_ms = tonumber(ARGV[1])
if not now_ms then
  local time = redis.call('TIME')
  now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
local day
for i = DAYS, 0, -1 do
  if now_ms >= tonumber(ARGV[3 + i]) then
    if i < DAYS then day = tonumber(ARGV[2]) + i end
    break
  end
end
if not day then return {3, now_ms} end

-- A limit is one line here. A bucket is the stretch of time that the limit counts over; buckets never go back.
local LIMITS = {
  {most = per_user, bucket = 0, code = 8},
  {most = per_user_per_day, bucket = day, code = 9},
}

local campaign_refusal
if status == 'closed' then campaign_refusal = 4
elseif status ~= 'open' then campaign_refusal = 3
elseif now_ms < starts_at_ms then campaign_refusal = 5
elseif ends_at_ms > 0 and now_ms >= ends_at_ms then campaign_refusal = 6
end

local function record_of(used)
  local record = used[1] .. ':' .. used[2]
  for at = 3, #used, 2 do record = record .. ';' .. used[at] .. ':' .. used[at + 1] end
  return record
end

-- used_by reads a user's record into {bucket, units, bucket, units, ...}, one pair for each limit; nil: it makes no sense.
local function used_by(record)
  local used, n = {}, 0
  if record then
    for bucket, units in string.gmatch(record, '(%d+):(%d+)') do
      used[n + 1], used[n + 2] = tonumber(bucket), tonumber(units)
      n = n + 2
    end
    if n == 0 or record_of(used) ~= record then return nil end
  end
  for i, limit in ipairs(LIMITS) do
    local at = 2 * i - 1
    if not used[at] or used[at] < limit.bucket then used[at], used[at + 1] = limit.bucket, 0 end
  end
  return used
end

local function refused_by_limit(used, quantity)
  for i, limit in ipairs(LIMITS) do
    if limit.most > 0 and used[2 * i] + quantity > limit.most then return limit.code end
  end
end

local claims = (#ARGV - FIRST_CLAIM + 1) / PER_CLAIM
local user_ids, key_ids = {}, {}
for i = 1, claims do
  local at = FIRST_CLAIM + (i - 1) * PER_CLAIM
  user_ids[i], key_ids[i] = ARGV[at], ARGV[at + 2]
end
local known = redis.call('HMGET', keys_key, unpack(key_ids))
local remaining = total - taken
local records = {}
if not campaign_refusal and remaining > 0 then records = redis.call('HMGET', users_key, unpack(user_ids)) end

local reply = {0, now_ms, 0}
local used_now, known_now = {}, {} -- by this call, so that two claims of one user or key in it see each other
local events, new_users, new_keys = {}, {}, {}

local function refuse_or_take(i, at)
  local user, quantity, key, head = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2], ARGV[at + 3]
  local record = known[i] or known_now[key]
  if record then
    if string.sub(record, 1, 8) == string.sub(head, 1, 8) then return 1, record end
    return 2, 0
  end
  if campaign_refusal then return campaign_refusal, 0 end
  if quantity > remaining then return 7, 0 end
  local used = used_now[user] or used_by(records[i])
  if not used then return 10, 0 end
  local refusal = refused_by_limit(used, quantity)
  if refusal then return refusal, 0 end

  for limit = 2, #used, 2 do used[limit] = used[limit] + quantity end
  used_now[user] = used
  remaining, taken, seq = remaining - quantity, taken + quantity, seq + 1
  record = head .. seq .. ':' .. now_ms
  known_now[key] = record
  new_keys[#new_keys + 1] = key
  new_keys[#new_keys + 1] = record
  events[#events + 1] = ARGV[at + 4]
  events[#events + 1] = ARGV[at + 5] .. ',"seq":' .. seq
  return 0, seq
end

for i = 1, claims do
  local code, value = refuse_or_take(i, FIRST_CLAIM + (i - 1) * PER_CLAIM)
  reply[2 * i + 2], reply[2 * i + 3] = code, value
end
if remaining > 0 then reply[3] = remaining end
if #events == 0 then return reply end

-- rfc3339 writes milliseconds since 1970 as UTC. Days to a date: the civil-from-days method of H. Hinnant.
local function rfc3339(ms)
  local floor = math.floor
  local s = floor(ms / 1000)
  local z = floor(s / 86400) + 719468
  local era = floor(z / 146097)
  local doe = z - era * 146097
  local yoe = floor((doe - floor(doe / 1460) + floor(doe / 36524) - floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + floor(yoe / 4) - floor(yoe / 100))
  local mp = floor((5 * doy + 2) / 153)
  local d = doy - floor((153 * mp + 2) / 5) + 1
  local m = mp < 10 and mp + 3 or mp - 9
  local y = yoe + era * 400 + (m <= 2 and 1 or 0)
  local r = s % 86400
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%03dZ', y, m, d, floor(r / 3600), floor(r / 60) % 60, r % 60, ms % 1000)
end

-- Writes. From here on nothing can fail.
local tail = ',"epoch":' .. epoch .. ',"at":"' .. rfc3339(now_ms) .. '"}'
for i = 1, #events, 2 do
  redis.call('XADD', stream_key, '*', '_watermill_message_uuid', events[i], 'metadata', '', 'payload', events[i + 1] .. tail)
end
for user, used in pairs(used_now) do
  new_users[#new_users + 1] = user
  new_users[#new_users + 1] = record_of(used)
end
redis.call('HSET', users_key, unpack(new_users))
redis.call('HSET', keys_key, unpack(new_keys))
redis.call('HSET', state_key, 'taken', taken, 'seq', seq)
return reply
