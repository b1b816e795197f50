-- claim.lua takes units of one campaign for a batch of claims, in order, and
-- appends their events to the claim stream, in one step. A claim with a known
-- key is replayed. Any other must pass the status, the window, the stock and
-- the limits.
--
-- All checks precede the first write, and no write after it can fail. Reads
-- fail on a key of a wrong type. The first write is an XADD, or the only one an
-- HSET. Redis refuses it whole for a wrong type, out of memory, as a replica,
-- or if it can't persist.
--
-- KEYS[1] state   hash    definition and counters of the campaign
-- KEYS[2] users   hash    user id, or "name\nvalue" of another subject
--                         -> the subject's record, see read_record
-- KEYS[3] keys    hash    digest of the client's key, or claim id, 16 bytes
--                         -> record of the claim
-- KEYS[4] stream  stream  the claim stream of the partition
-- KEYS[5] signals hash    of the partition, see away.lua
-- KEYS[6] waves   zset    of packet campaigns: lists of packets by time of
--                         release, see push.lua
--
-- ARGV[1]     now_ms        milliseconds since 1970; empty: this server's clock
-- ARGV[2]     first_day     the first day below, in days since 1970-01-01 in
--                           the campaign's zone
-- ARGV[3..8]  day_start_ms  the starts of that day and the next five
-- ARGV[9]     seen_epoch    the newest load that the caller saw; 0 is none
-- ARGV[10]    seen_seq      the highest seq that the caller saw
-- ARGV[11]    seen_units    the most units that the caller saw sold
-- ARGV[12]    subjects      names of other subjects, sorted, joined by " ";
--                           each has a column after the six
-- ARGV[13]    made_ms       when the campaign that the caller knows was made;
--                           after a deletion another may have its id. 0: unknown
-- ARGV[14..]  six a claim, in columns, as a command takes a range of ARGV:
--             user id; quantity; key, 16 bytes; record head, which starts with
--             the 8 bytes of the body's digest; claim id; event part, the JSON
--             from the value of user_id to that of seq. Quantity of a packet: 1.
--             Then a column for each subject: its field of users, or "".
--             Then, if any is traced: "claim's number=traceparent;" of each
--
-- Reply {0, now_ms, remaining, epoch, seq, sold, then one a claim}
-- One above 0 is the seq of a new claim. Text is the record of a replayed one.
-- Else it is 0 less the code of the refusal. Then come "amount:id" of each new
-- packet, and after refusals 13 or 14 the limits that these refer to.
--   0 claimed · 1 replayed · 2 idempotency_mismatch · 3 paused · 4 closed
--   5 not_started · 6 ended · 7 sold_out · 8 user_limit · 9 user_day_limit
--   10 damaged: the record of this user or of this claim
--   11 not_released: the packets' time has not come
--   12 dry: other shards may have enough units; never for packets, which
--      stay in their shard
--   13 limit: 1300 and the limit's number in limits
--   14 invalid: 1400 and the number of a limit whose subject is missing
-- or {1} absent: the campaign is missing or away, or another has its id
-- or {2, which} damaged: the key of that number; nothing was changed
-- or {3, now_ms} clock: now is outside of the days above
-- or {4, epoch, seq} rolled back: Redis is behind what the caller saw;
--    the campaign is stopped until it is loaded or resumed
local state_key, users_key, keys_key = KEYS[1], KEYS[2], KEYS[3]
local stream_key, signals_key, waves_key = KEYS[4], KEYS[5], KEYS[6]
local find, sub, match = string.find, string.sub, string.match
local FIRST_CLAIM, PER_CLAIM, DAYS = 14, 6, 5

-- include users_records.lua

local names = {
  'status', 'total', 'taken', 'seq', 'epoch', 'starts_at_ms', 'ends_at_ms', 'low_stock_at', 'last_ms',
  'per_user', 'per_user_per_day', 'sold',
}
local campaign_id, shard = match(state_key, ':c:([^#]*)#?(%d*)$')
shard = shard ~= '' and shard
local numbers = #names
names[numbers + 1] = 'limits'
names[numbers + 2] = 'generation'
names[numbers + 3] = 'token'
names[numbers + 4] = 'made_ms'
-- pcall returns the error of a wrong type, so no call is spent on TYPE.
local fields = redis.pcall('HMGET', state_key, unpack(names))
if fields.err then return {2, 1} end
local status, epoch = fields[1], fields[5]
if fields[numbers + 3] or not status and redis.call('EXISTS', state_key, users_key, keys_key) == 0 then return {1} end
for i = 2, numbers do
  -- tonumber accepts "nan", "1e9" and "0x10". A shard may owe units.
  local text = fields[i]
  if not text or #text > DIGITS or not find(text, i == 2 and shard and '^%-?%d+$' or '^%d+$') then return {2, 1} end
end
local total, taken, seq, sold = tonumber(fields[2]), tonumber(fields[3]), tonumber(fields[4]), tonumber(fields[numbers])
local starts_at_ms, ends_at_ms, low_stock_at = tonumber(fields[6]), tonumber(fields[7]), tonumber(fields[8])
if fields[numbers + 2] ~= (redis.call('HGET', signals_key, 'generation') or '0') then return {1} end
local made_ms = fields[numbers + 4]
if made_ms and ARGV[13] ~= '0' and made_ms ~= ARGV[13] then return {1} end
if status ~= 'open' and status ~= 'paused' and status ~= 'closed' then return {2, 1} end
-- Claims wrote both hashes, and so did a load
-- of sold units: a missing one was lost.
if sold > 0 and redis.call('EXISTS', users_key, keys_key) < 2 then return {2, redis.call('EXISTS', users_key) == 0 and 2 or 3} end

local epoch_here = tonumber(epoch)
if epoch_here < tonumber(ARGV[9]) or seq < tonumber(ARGV[10]) or sold < tonumber(ARGV[11]) then
  -- also stops callers who did not see the lost claims
  redis.call('HSET', state_key, 'token', 'seen')
  redis.call('HINCRBY', signals_key, 'stops', 1) -- processes then report what they saw
  return {4, epoch_here, seq}
end

local now_text = ARGV[1]
if now_text == '' then
  local time = redis.call('TIME')
  now_text = time[1] .. sub('00000' .. time[2], -6, -4)
end
local now_ms = tonumber(now_text)
if now_ms < tonumber(ARGV[3]) or now_ms >= tonumber(ARGV[3 + DAYS]) then return {3, now_ms} end
-- Times in the ledger rise with seq, even if the clock steps back.
if seq > 0 and now_ms < tonumber(fields[9]) then
  now_text = fields[9]
  now_ms = tonumber(now_text)
end
local day, day_start_ms = tonumber(ARGV[2]), tonumber(ARGV[3])
for i = 1, DAYS - 1 do
  local start_ms = tonumber(ARGV[3 + i])
  if now_ms < start_ms then break end
  day, day_start_ms = day + 1, start_ms
end

-- date_of returns the date of a day since 1970-01-01, by H. Hinnant's
-- civil_from_days.
local function date_of(day)
  local floor = math.floor
  local z = day + 719468
  local era = floor(z / 146097)
  local doe = z - era * 146097
  local yoe = floor((doe - floor(doe / 1460) + floor(doe / 36524) - floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + floor(yoe / 4) - floor(yoe / 100))
  local mp = floor((5 * doy + 2) / 153)
  local m = mp < 10 and mp + 3 or mp - 9
  return yoe + era * 400 + (m <= 2 and 1 or 0), m, doy - floor((153 * mp + 2) / 5) + 1
end

local user_limits, subjects = read_limits(tonumber(fields[10]), tonumber(fields[11]), fields[numbers + 1])
if not user_limits then return {2, 1} end
user_limits[1].code = 8
user_limits[1].window = 0
user_limits[2].code = 9
user_limits[2].window = day
if user_limits[3] or subjects[1] then
  -- The numbers of the current windows,
  -- by first letter, as in limits.go.
  local y, m = date_of(day)
  local window = {
    h = day * 100 + math.floor((now_ms - day_start_ms) / 3600000), d = day,
    w = math.floor((day + 3) / 7), -- 1970-01-01 was a Thursday
    m = y * 12 + m, a = 0,
  }
  subjects[0] = user_limits
  for s = 0, #subjects do
    subjects[s].first_records = {}
    for i = s == 0 and 3 or 1, #subjects[s] do
      local limit = subjects[s][i]
      limit.window = window[sub(limit.tag, 1, 1)]
      limit.code = 1300 + limit.number
      if not limit.window then return {2, 1} end
    end
  end
end

local campaign_refusal
if status == 'closed' then campaign_refusal = 4
elseif status == 'paused' then campaign_refusal = 3
elseif now_ms < starts_at_ms then campaign_refusal = 5
elseif ends_at_ms > 0 and now_ms >= ends_at_ms then campaign_refusal = 6
end

-- after_taking adds a quantity to a subject's record
-- and returns it. If a limit refuses, it returns nil
-- and the limit's code. It changes windows and counts.
local function after_taking(limits, windows, counts, quantity, is_user)
  for i = 1, #limits do
    local limit = limits[i]
    local tag, window = limit.tag, limit.window
    local units = 0
    local counted = windows[tag]
    if counted and counted >= window then window, units = counted, counts[tag] end
    units = units + quantity
    if now_ms >= limit.from then
      if limit.most > 0 and units > limit.most then return nil, limit.code end
      windows[tag], counts[tag] = window, units
    end
  end
  return write_record(limits, windows, counts, is_user)
end

-- In a rush nearly every user is new: one record per quantity.
local first_records = {}
local function first_taking(text)
  local quantity = tonumber(text)
  local after, refusal = after_taking(user_limits, {}, {}, quantity, true)
  local first = {quantity, after, refusal}
  first_records[text] = first
  return first
end

-- Column c of claim i is ARGV[c + i].
local columns = PER_CLAIM
for name in string.gmatch(ARGV[12], '[%l_]+') do
  columns = columns + 1
  if subjects[name] then subjects[name].column = columns end
end
local claims = math.floor((#ARGV - FIRST_CLAIM + 1) / columns)
local users, quantities = FIRST_CLAIM - 1, FIRST_CLAIM - 1 + claims
local keys = quantities + claims
local heads = keys + claims
local ids = heads + claims
local parts = ids + claims

-- Metadata of traced claims, by number: a
-- MessagePack map of one, as watermill reads it.
local traces = ARGV[FIRST_CLAIM + claims * columns]
local traced = {}
if traces then
  for i, parent in string.gmatch(traces, '(%d+)=([%x-]+);') do
    if #parent == 55 then traced[tonumber(i)] = '\129\171traceparent\217\055' .. parent end
  end
end

local known = redis.pcall('HMGET', keys_key, unpack(ARGV, keys + 1, keys + claims))
if known.err then return {2, 3} end
local remaining = total - taken
local remaining_before = remaining
local records = {}
if not campaign_refusal and remaining > 0 then
  records = redis.pcall('HMGET', users_key, unpack(ARGV, users + 1, users + claims))
  if records.err then return {2, 2} end
  for _, limits in ipairs(subjects) do
    if limits.column then
      limits.fields = FIRST_CLAIM - 1 + (limits.column - 1) * claims
      limits.records = redis.call('HMGET', users_key, unpack(ARGV, limits.fields + 1, limits.fields + claims))
    end
  end
end

-- Packets are given out by time of release, then in
-- order of push. packets are those that this call may
-- need. The first upto[i] are in lists[1] to lists[i].
local packets, amounts, packet_ids, lists, upto = {}, {}, {}, {}, {}
local function find_packets(most)
  local found = 0
  local waves = redis.pcall('ZRANGEBYSCORE', waves_key, '-inf', now_ms)
  if waves.err then return false end
  for i, list in ipairs(waves) do
    local in_list = redis.pcall('LRANGE', list, 0, most - found - 1)
    if in_list.err or #in_list == 0 then return false end
    for _, packet in ipairs(in_list) do
      local amount, id = match(packet, '^(%d+):([%w._-]+)$')
      if not amount or #amount > DIGITS or #id > 64 then return false end
      found = found + 1
      packets[found] = packet
      amounts[found] = amount
      packet_ids[found] = id
    end
    lists[i], upto[i] = list, found
    if found == most then return true end
  end
  -- The others are not released yet. If some
  -- are missing, that is damage, not sold out.
  local there = 0
  for _, list in ipairs(redis.call('ZRANGE', waves_key, 0, -1)) do
    local length = redis.pcall('LLEN', list)
    if type(length) == 'table' or length == 0 then return false end
    there = there + length
  end
  return there == remaining
end
if waves_key and not campaign_refusal and remaining > 0 and not find_packets(math.min(claims, remaining)) then return {2, 5} end

-- rfc3339 formats milliseconds since 1970 as UTC.
local function rfc3339(ms)
  local floor = math.floor
  local s = floor(ms / 1000)
  local y, m, d = date_of(floor(s / 86400))
  local r = s % 86400
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%03dZ', y, m, d, floor(r / 3600), floor(r / 60) % 60, r % 60, ms % 1000)
end

-- Parts that the events and records of this call share.
local event_head = '{"v":1,"type":"claim.accepted","id":"'
local event_middle = '","campaign_id":"' .. campaign_id .. '","user_id":'
local event_tail = (shard and ',"shard":' .. shard or '') .. ',"epoch":' .. epoch .. ',"at":"' .. rfc3339(now_ms) .. '"}'
-- Each string is made in one go: making one costs Redis by its length.
local packet_tail = sub(event_tail, 1, -2) .. ',"packet_id":"'
local record_tail = ':' .. now_text .. (waves_key and ':' or '')
-- What follows the head of a record: a packet's amount and id, or the
-- state of a release, see release.lua.
local RECORD = waves_key and '^%d+:%d+:%d+:[%w._-]+$' or '^%d+:%d+$'
local RELEASED = waves_key and RECORD or '^%d+:%d+:r$'

-- seq is formatted as tens and a digit:
-- formatting all of it costs more.
local DIGIT = {[0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'}
local digit = seq % 10
local function tens_of(n) return n < 10 and '' or string.format('%.0f', (n - n % 10) / 10) end
local tens = tens_of(seq)

local dry = shard and not waves_key and -12 or -7
local reply = {0, now_ms, 0, epoch_here, seq, sold}
-- this call's records: its claims of one user or key see each other
local user_here, key_here = {}, {}
local event_ids, events, metadata, new_keys, new_users = {}, {}, {}, {}, {}
local made = 0 -- new claims of this call
local seq_text -- of the last claim
local is_limited = false -- a refusal refers to limits
local changed = 0 -- length of new_users

-- take_subjects adds claim i to the records of its
-- limited subjects. It returns their fields and records,
-- alternating, or nil and the code of the refusal.
local take_subjects = subjects[1] and function(i, quantity)
  local taken_by = {}
  local n = 0
  for s = 1, #subjects do
    local limits = subjects[s]
    local field = limits.column and ARGV[limits.fields + i] or ''
    if field == '' then return nil, 1400 + limits[1].number end
    local record = user_here[field] or limits.records[i]
    local after, refusal
    if record then
      local windows, counts = read_record(record)
      if not windows then return nil, 10 end
      after, refusal = after_taking(limits, windows, counts, quantity)
    else
      local first = limits.first_records[quantity] -- as of users
      if not first then
        first = {after_taking(limits, {}, {}, quantity)}
        limits.first_records[quantity] = first
      end
      after, refusal = first[1], first[2]
    end
    if refusal then return nil, refusal end
    if after ~= '' then
      taken_by[n + 1] = field
      taken_by[n + 2] = after
      n = n + 2
    end
  end
  return taken_by
end

for i = 1, claims do
  local answer
  repeat -- runs once; break is an answer
    local key, head = ARGV[keys + i], ARGV[heads + i]
    local claim = known[i] or key_here[key]
    if claim then
      if not find(claim, RECORD, #head + 1) and not find(claim, RELEASED, #head + 1) then answer = -10
      elseif sub(claim, 1, 8) == sub(head, 1, 8) then answer = claim
      else answer = -2
      end
      break
    end
    if campaign_refusal then answer = -campaign_refusal break end
    local text = ARGV[quantities + i]
    local first = first_records[text] or first_taking(text)
    local quantity = first[1]
    if quantity > remaining then answer = dry break end
    local packet = packets[made + 1]
    if waves_key and not packet then answer = -11 break end
    local user = ARGV[users + i]
    local record, after, refusal = user_here[user] or records[i], first[2], first[3]
    if record then
      local windows, counts = read_record(record, true)
      if not windows then answer = -10 break end
      after, refusal = after_taking(user_limits, windows, counts, quantity, true)
    end
    local taken_by
    if not refusal and take_subjects then taken_by, refusal = take_subjects(i, quantity) end
    if refusal then
      answer = -refusal
      if refusal > 1300 then is_limited = true end
      break
    end

    remaining = remaining - quantity
    taken = taken + quantity
    sold = sold + quantity
    seq = seq + 1
    made = made + 1
    digit = digit + 1
    if digit == 10 then tens, digit = tens_of(seq), 0 end
    seq_text = tens .. DIGIT[digit]
    local id = ARGV[ids + i]
    event_ids[made] = id
    metadata[made] = traced[i]
    if packet then
      claim = head .. seq_text .. record_tail .. packet
      events[made] = event_head .. id .. event_middle .. ARGV[parts + i] .. seq_text .. packet_tail .. packet_ids[made] ..
        '","amount":' .. amounts[made] .. '}'
    else
      claim = head .. seq_text .. record_tail
      events[made] = event_head .. id .. event_middle .. ARGV[parts + i] .. seq_text .. event_tail
    end
    user_here[user] = after
    key_here[key] = claim
    new_users[changed + 1] = user -- HSET takes the last record of a user
    new_users[changed + 2] = after
    changed = changed + 2
    if taken_by then
      for j = 1, #taken_by, 2 do
        user_here[taken_by[j]] = taken_by[j + 1]
        new_users[changed + 1] = taken_by[j]
        new_users[changed + 2] = taken_by[j + 1]
        changed = changed + 2
      end
    end
    new_keys[2 * made - 1] = key
    new_keys[2 * made] = claim
    answer = seq
  until true
  reply[6 + i] = answer
end
if remaining > 0 then reply[3] = remaining end
local tail = 6 + claims
if is_limited then reply[tail + 1 + (waves_key and made or 0)] = fields[numbers + 1] end
if made == 0 then return reply end
reply[5] = seq
reply[6] = sold

-- A crossed line has one event: the next call starts below it, until a
-- restock. A shard does not know its campaign's stock, so it has no
-- low_stock_at, and appends no campaign.sold_out.
local crossed = {}
if low_stock_at > 0 and remaining_before > low_stock_at and remaining <= low_stock_at then crossed[1] = 'low_stock' end
if remaining == 0 and not shard then crossed[#crossed + 1] = 'sold_out' end

-- Writes. None after the first can fail.
for i = 1, made do
  local added = redis.pcall('XADD', stream_key, '*', '_watermill_message_uuid', event_ids[i],
    'metadata', metadata[i] or '', 'payload', events[i])
  if added.err then return find(added.err, '^WRONGTYPE') and {2, 4} or added end
end
if #crossed > 0 then
  local last = event_ids[made]
  for _, name in ipairs(crossed) do
    local id = last .. ':' .. name
    redis.call('XADD', stream_key, '*', '_watermill_message_uuid', id, 'metadata', '', 'payload',
      '{"v":1,"type":"campaign.' .. name .. '","id":"' .. id .. '","campaign_id":"' .. campaign_id ..
      '","remaining":' .. remaining .. ',"seq":' .. seq_text .. event_tail)
  end
end
redis.call('HSET', users_key, unpack(new_users))
redis.call('HSET', keys_key, unpack(new_keys))
redis.call('HSET', state_key, 'taken', taken == seq and seq_text or taken, 'sold', sold == seq and seq_text or sold,
  'seq', seq_text, 'last_ms', now_text)
for i = 1, waves_key and made or 0 do reply[tail + i] = packets[i] end
local removed = 0
for i, list in ipairs(lists) do
  local last = math.min(upto[i], made)
  if last > removed then
    -- before LTRIM: during a slot migration a missing key is refused
    local left = redis.call('LLEN', list) - (last - removed)
    redis.call('LTRIM', list, last - removed, -1)
    if left == 0 then redis.call('ZREM', waves_key, list) end
    removed = last
  end
end
return reply
