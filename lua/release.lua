-- release.lua gives back what released claims of one campaign took, each once, and adds their events to the claim stream, in one step.
--
-- The record of a claim ends with the state of its release. As claim.lua wrote it, nothing was given back. With :b behind it, a
-- load from MySQL left the claim out of the counts, and its event is missing. With :r behind it, all is done. The script checks
-- everything before it writes, and the first write is an XADD, see claim.lua.
--
-- KEYS[1] state   hash    definition and counters of the campaign
-- KEYS[2] users   hash    user id -> record of what the user holds: "bucket:units" for each limit, joined by ";"
-- KEYS[3] keys    hash    16 bytes, the digest of the client's key or else the claim id -> record of the claim
-- KEYS[4] stream  stream  the claim stream of the partition
--
-- ARGV[1]    epoch  the load that MySQL knows
-- ARGV[2..]  seven a claim:  field of keys; record, as claim.lua wrote it; user id; quantity in units; the buckets that the
--            claim counts in, one for each limit, joined by ";"; event id; event, JSON
--
-- Reply {0, then a code for each claim}
--   0 given back, event added · 1 event added, a load had given it back · 2 nothing, both were done before
--   3 damaged: the record of this claim or of its user; nothing was changed for it
-- or {1} absent: the campaign is not here · {2, which} damaged: the key of that number; nothing was changed
-- or {3} another load is here, or one that is not to be trusted; nothing was changed
local state_key, users_key, keys_key, stream_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local FIRST_CLAIM, PER_CLAIM = 2, 7

-- users' records: begin. claim.lua and release.lua hold the same text from here to the end mark.
local DIGITS = 15 -- Lua holds numbers of up to 15 digits exactly

-- read_record reads a user's record: "bucket:units" for each limit, joined by ";". It returns the buckets as text and the units
-- in each as numbers, or nil if the record is damaged. A record that is older than the newest limit has no pair for that limit.
local function read_record(record)
  local buckets, counts, n, joined = {}, {}, 0, nil
  for bucket, units in string.gmatch(record, '(%d+):(%d+)') do
    if #bucket > DIGITS or #units > DIGITS then return nil end
    n = n + 1
    buckets[n], counts[n] = bucket, tonumber(units)
    joined = (joined and joined .. ';' or '') .. bucket .. ':' .. units
  end
  if joined ~= record then return nil end
  return buckets, counts
end

-- write_record writes what read_record reads.
local function write_record(buckets, counts)
  local record = buckets[1] .. ':' .. counts[1]
  for i = 2, #buckets do record = record .. ';' .. buckets[i] .. ':' .. counts[i] end
  return record
end
-- users' records: end.

local function type_of(key) return redis.call('TYPE', key)['ok'] end
local state_type, users_type, keys_type, stream_type = type_of(state_key), type_of(users_key), type_of(keys_key), type_of(stream_key)
if state_type == 'none' then return {1} end
if state_type ~= 'hash' then return {2, 1} end
local fields = redis.call('HMGET', state_key, 'epoch', 'taken', 'released', 'ups', 'status')
local ups = fields[4] -- of a shard, see move.lua
fields[4] = ups or '0'
for i = 1, 4 do
  if not fields[i] or not string.find(fields[i], '^%d+$') or #fields[i] > DIGITS then return {2, 1} end
end
if tonumber(fields[1]) ~= tonumber(ARGV[1]) or fields[5] == 'fenced' then return {3} end
-- There is a claim, so both hashes were written.
if users_type ~= 'hash' then return {2, 2} end
if keys_type ~= 'hash' then return {2, 3} end
if stream_type ~= 'stream' and stream_type ~= 'none' then return {2, 4} end
local taken, released = tonumber(fields[2]), tonumber(fields[3])

local claims = (#ARGV - FIRST_CLAIM + 1) / PER_CLAIM
local names, user_ids = {}, {}
for i = 1, claims do
  local at = FIRST_CLAIM + (i - 1) * PER_CLAIM
  names[i], user_ids[i] = ARGV[at], ARGV[at + 2]
end
local records = redis.call('HMGET', keys_key, unpack(names))
local users = redis.call('HMGET', users_key, unpack(user_ids))

-- without takes a quantity out of a user's record, for each limit whose bucket in the record is the claim's. It returns nil if the
-- record is damaged or does not hold that much.
local function without(record, quantity, buckets_of_claim)
  local buckets, counts = read_record(record)
  if not buckets then return nil end
  local i = 0
  for bucket in string.gmatch(buckets_of_claim, '%d+') do
    i = i + 1
    if bucket == buckets[i] then
      if quantity > counts[i] then return nil end
      counts[i] = counts[i] - quantity
    end
  end
  return write_record(buckets, counts)
end

local reply = {0}
local key_here, user_here = {}, {} -- records that this call changed, so that its claims of one user see each other
local added, given = {}, 0 -- claims whose event is added, by their place in ARGV; how many of them are given back

local function give_back(i, at)
  local name, whole, user, quantity = ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
  local record = key_here[name] or records[i]
  if record == whole .. ':r' then return 2 end
  if record == whole .. ':b' then
    key_here[name] = whole .. ':r'
    added[#added + 1] = at
    return 1
  end
  local units = user_here[user] or users[i]
  if record ~= whole or not units or quantity > taken then return 3 end
  local after = without(units, quantity, ARGV[at + 4])
  if not after then return 3 end
  key_here[name], user_here[user] = whole .. ':r', after
  added[#added + 1] = at
  taken, released, given = taken - quantity, released + 1, given + 1
  return 0
end

for i = 1, claims do reply[i + 1] = give_back(i, FIRST_CLAIM + (i - 1) * PER_CLAIM) end
if #added == 0 then return reply end

-- Writes. From here on nothing can fail.
for _, at in ipairs(added) do
  redis.call('XADD', stream_key, '*', '_watermill_message_uuid', ARGV[at + 5], 'metadata', '', 'payload', ARGV[at + 6])
end
local changed, n = {}, 0
for name, record in pairs(key_here) do
  changed[n + 1], changed[n + 2] = name, record
  n = n + 2
end
redis.call('HSET', keys_key, unpack(changed))
if given == 0 then return reply end
changed, n = {}, 0
for user, record in pairs(user_here) do
  changed[n + 1], changed[n + 2] = user, record
  n = n + 2
end
redis.call('HSET', users_key, unpack(changed))
redis.call('HSET', state_key, 'taken', taken, 'released', released)
if ups then redis.call('HSET', state_key, 'ups', tonumber(ups) + 1) end
return reply
