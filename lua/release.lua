-- release.lua gives back what released claims of one campaign took, each once, and adds their events to the claim stream, in one step.
--
-- The record of a claim ends with the state of its release. As claim.lua wrote it, nothing was given back. With :b behind it, a
-- load from MySQL left the claim out of the counts, and its event is missing. With :r behind it, all is done. The script checks
-- everything before it writes, and the first write is an XADD, see claim.lua.
--
-- KEYS[1] state   hash    definition and counters of the campaign
-- KEYS[2] users   hash    user id, or "name\nvalue" of another subject -> record of what the subject holds, see read_record
-- KEYS[3] keys    hash    16 bytes, the digest of the client's key or else the claim id -> record of the claim
-- KEYS[4] stream  stream  the claim stream of the partition
--
-- ARGV[1]    epoch  the load that MySQL knows
-- ARGV[2..]  eight a claim:  field of keys; record, as claim.lua wrote it; user id; quantity in units; when it was made in ms, and
--            for each kind of window ";", its first letter and its number; event id; event, JSON; other subjects, "name\nvalue" each,
--            joined by "\n"
--
-- Reply {0, then a code for each claim}
--   0 given back, event added · 1 event added, a load had given it back · 2 nothing, both were done before
--   3 damaged: the record of this claim or of its user; nothing was changed for it
-- or {1} absent: the campaign is not here · {2, which} damaged: the key of that number; nothing was changed
-- or {3} another load is here, or one that is not to be trusted; nothing was changed
local state_key, users_key, keys_key, stream_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local FIRST_CLAIM, PER_CLAIM = 2, 8

-- users' records: begin. claim.lua and release.lua hold the same text from here to the end mark.
local DIGITS = 15 -- Lua holds numbers of up to 15 digits exactly

-- read_limits reads a campaign's limits: a list of those of the user, and the others by the name of their subject and as a list. The
-- user's first two are always counted; each of the others is "tag:units:from_ms:subject", joined by ";". The tag is the first letter of
-- all, hour, day, week or month, and the number of the definition that added the limit. Claims before from_ms do not count. It returns
-- nil if the text is damaged.
local function read_limits(per_user, per_user_per_day, text)
  local of_user = {{tag = 'a', most = per_user, from = 0}, {tag = 'd', most = per_user_per_day, from = 0}}
  local others, n, joined = {}, 0, {}
  if not text or text == '' then return of_user, others end
  for tag, most, from, by in string.gmatch(text, '(%l%d+):(%d+):(%d+):([%l_]+)') do
    if #most > DIGITS or #from > DIGITS then return nil end
    n = n + 1
    joined[n] = tag .. ':' .. most .. ':' .. from .. ':' .. by
    local group = of_user
    if by ~= 'user' then
      if not others[by] then
        others[by] = {name = by}
        others[#others + 1] = others[by]
      end
      group = others[by]
    end
    group[#group + 1] = {tag = tag, most = tonumber(most), from = tonumber(from), number = n}
  end
  if table.concat(joined, ';') ~= text then return nil end
  return of_user, others
end

-- read_record reads the record of what a subject holds: the newest window of each limit, and the units in it. A user's begins with
-- "0:units;day:units", what the user holds in all and on the last day. For each other limit follows ";tag.window:units". It returns
-- the windows and the units as numbers by tag, or nil if the record is damaged.
local function read_record(record, is_user)
  local windows, counts, rest, joined = {}, {}, record, ''
  if is_user then
    local all, day, today
    all, day, today, rest = string.match(record, '^0:(%d+);(%d+):(%d+)(.*)$')
    if not all or #all > DIGITS or #day > DIGITS or #today > DIGITS then return nil end
    windows.a, counts.a, windows.d, counts.d = 0, tonumber(all), tonumber(day), tonumber(today)
  end
  if rest == '' then return windows, counts end
  for tag, window, units in string.gmatch(rest, ';(%l%d+)%.(%d+):(%d+)') do
    if #window > DIGITS or #units > DIGITS then return nil end
    windows[tag], counts[tag] = tonumber(window), tonumber(units)
    joined = joined .. ';' .. tag .. '.' .. window .. ':' .. units
  end
  if joined ~= rest then return nil end
  return windows, counts
end

-- write_record writes what read_record reads. Limits that were removed are left out.
local function write_record(limits, windows, counts, is_user)
  local record, first = '', 1
  if is_user then record, first = '0:' .. counts.a .. ';' .. windows.d .. ':' .. counts.d, 3 end
  for i = first, #limits do
    local tag = limits[i].tag
    if windows[tag] then record = record .. ';' .. tag .. '.' .. windows[tag] .. ':' .. counts[tag] end
  end
  return record
end
-- users' records: end.

local function type_of(key) return redis.call('TYPE', key)['ok'] end
local state_type, users_type, keys_type, stream_type = type_of(state_key), type_of(users_key), type_of(keys_key), type_of(stream_key)
if state_type == 'none' then return {1} end
if state_type ~= 'hash' then return {2, 1} end
local fields = redis.call('HMGET', state_key, 'epoch', 'taken', 'released', 'ups', 'status', 'limits')
local ups = fields[4] -- of a shard, see credit.lua
fields[4] = ups or '0'
for i = 1, 4 do
  if not fields[i] or not string.find(fields[i], '^%d+$') or #fields[i] > DIGITS then return {2, 1} end
end
if tonumber(fields[1]) ~= tonumber(ARGV[1]) or fields[5] == 'fenced' then return {3} end
local user_limits, subjects = read_limits(0, 0, fields[6])
if not user_limits then return {2, 1} end
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

-- without takes a quantity out of a subject's record, for each limit that counted the claim and whose window in the record is the claim's.
-- It returns nil if the record is damaged or does not hold that much.
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
  local at_ms, windows = tonumber(string.match(ARGV[at + 4], '^%d+')), {}
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
