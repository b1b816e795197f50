-- release.lua frees what released claims of one campaign took, each once, and
-- appends their events, in one step. The record of a released claim ends with
-- :r, also after a load, unless its release is still in MySQL's outbox.
-- For a lot that is away without a token only the events are appended: the next
-- load counts MySQL's rows. All checks precede the first write, which is an
-- XADD, see claim.lua.
--
-- KEYS[1] state   hash    definition and counters of the campaign
-- KEYS[2] users   hash    user id, or "name\nvalue" of another subject
--                         -> the subject's record, see read_record
-- KEYS[3] keys    hash    digest of the client's key, or claim id, 16 bytes
--                         -> record of the claim
-- KEYS[4] stream  stream  the claim stream of the partition
-- KEYS[5] signals hash    of the partition, see away.lua
--
-- ARGV[1..]  eight a claim: field of keys; record, as claim.lua wrote it; user
--            id; quantity; its time in ms, and for each kind of window ";", its
--            first letter and number; event id; event, JSON; other subjects,
--            "name\nvalue" each, joined by "\n"
--
-- Reply {0, then a code for each claim}
--   0 released, event appended · 1 appended: the lot is away
--   2 nothing, done before
--   3 damaged: the record of the claim or of its user; unchanged
-- or {2, which} damaged: the key of that number; nothing was changed
-- or {3} later: the lot is being loaded; nothing was changed
local state_key, users_key, keys_key, stream_key, signals_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local FIRST_CLAIM, PER_CLAIM = 1, 8

-- include users_records.lua

local function type_of(key) return redis.call('TYPE', key)['ok'] end
local state_type, users_type = type_of(state_key), type_of(users_key)
local keys_type, stream_type = type_of(keys_key), type_of(stream_key)
if state_type ~= 'hash' and state_type ~= 'none' then return {2, 1} end
if stream_type ~= 'stream' and stream_type ~= 'none' then return {2, 4} end
local fields = redis.call('HMGET', state_key, 'taken', 'released', 'ups', 'limits', 'generation', 'token')
if fields[6] then return {3} end
local claims = (#ARGV - FIRST_CLAIM + 1) / PER_CLAIM
local reply = {0}
if state_type == 'none' or fields[5] ~= (redis.call('HGET', signals_key, 'generation') or '0') then
  for i = 1, claims do
    local at = FIRST_CLAIM + (i - 1) * PER_CLAIM
    redis.call('XADD', stream_key, '*', '_watermill_message_uuid', ARGV[at + 5], 'metadata', '', 'payload', ARGV[at + 6])
    reply[i + 1] = 1
  end
  return reply
end
local ups = fields[3] -- of a shard, see lua.Shares
fields[3] = ups or '0'
for i = 1, 3 do
  if not fields[i] or not string.find(fields[i], '^%d+$') or #fields[i] > DIGITS then return {2, 1} end
end
local user_limits, subjects = read_limits(0, 0, fields[4])
if not user_limits then return {2, 1} end
-- There is a claim, so both hashes must exist.
if users_type ~= 'hash' then return {2, 2} end
if keys_type ~= 'hash' then return {2, 3} end
local taken, released = tonumber(fields[1]), tonumber(fields[2])

local names, user_ids = {}, {}
for i = 1, claims do
  local at = FIRST_CLAIM + (i - 1) * PER_CLAIM
  names[i] = ARGV[at]
  user_ids[i] = ARGV[at + 2]
end
local records = redis.call('HMGET', keys_key, unpack(names))
local users = redis.call('HMGET', users_key, unpack(user_ids))

-- without subtracts a quantity from a subject's record, for each limit
-- that counted the claim and is still in its window. It returns nil if
-- the record is damaged or too small.
local function without(limits, record, quantity, at_ms, windows_of_claim, is_user)
  local windows, counts = read_record(record, is_user)
  if not windows then return nil end
  for _, limit in ipairs(limits) do
    local tag = limit.tag
    if windows[tag] and at_ms >= limit.from and windows[tag] == (windows_of_claim[string.sub(tag, 1, 1)] or 0) then
      if quantity > counts[tag] then return nil end
      counts[tag] = counts[tag] - quantity
    end
  end
  return write_record(limits, windows, counts, is_user)
end

local key_here, user_here = {}, {} -- this call's records: its claims of one user see each other
local added = {} -- released claims, by their index in ARGV

local function release(i, at)
  local name, whole, user, quantity = ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
  local record = key_here[name] or records[i]
  if record == whole .. ':r' then return 2 end
  local units = user_here[user] or users[i]
  if record ~= whole or not units or quantity > taken then return 3 end
  local at_ms = tonumber(string.match(ARGV[at + 4], '^%d+'))
  local windows = {}
  for per, window in string.gmatch(ARGV[at + 4], ';(%l)(%d+)') do windows[per] = tonumber(window) end
  local after = {[user] = without(user_limits, units, quantity, at_ms, windows, true)}
  if not after[user] then return 3 end
  for subject, value in string.gmatch(ARGV[at + 7], '([%l_]+)\n([^\n]+)') do
    local field = subject .. '\n' .. value
    local held = user_here[field] or subjects[subject] and redis.call('HGET', users_key, field)
    if held then
      after[field] = without(subjects[subject], held, quantity, at_ms, windows)
      if not after[field] then return 3 end
    end
  end
  key_here[name] = whole .. ':r'
  for field, left in pairs(after) do user_here[field] = left end
  added[#added + 1] = at
  taken = taken - quantity
  released = released + 1
  return 0
end

for i = 1, claims do reply[i + 1] = release(i, FIRST_CLAIM + (i - 1) * PER_CLAIM) end
if #added == 0 then return reply end

-- Writes. None after the first can fail.
for _, at in ipairs(added) do
  redis.call('XADD', stream_key, '*', '_watermill_message_uuid', ARGV[at + 5], 'metadata', '', 'payload', ARGV[at + 6])
end
local changed = {}
local n = 0
for name, record in pairs(key_here) do
  changed[n + 1] = name
  changed[n + 2] = record
  n = n + 2
end
redis.call('HSET', keys_key, unpack(changed))
changed = {}
n = 0
for user, record in pairs(user_here) do
  changed[n + 1] = user
  changed[n + 2] = record
  n = n + 2
end
redis.call('HSET', users_key, unpack(changed))
redis.call('HSET', state_key, 'taken', taken, 'released', released)
if ups then redis.call('HSET', state_key, 'ups', tonumber(ups) + 1) end
return reply
