/* test_cxx_objects.cpp - every object of the C++ interface between nodes behaves as the C object.
 * remo run -n 3 -- test_cxx_objects AREA */
#include "check.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <poll.h>
#include <string_view>
#include <type_traits>
#include <vector>

using namespace std::chrono_literals;

namespace {

void test_region(remo::node &node) {
    remo::barrier all(node, "all");
    remo::region region(node, "region", 4096);
    region.channel().wait(patience);
    std::uint32_t next = (node.rank() + 1) % node.size();
    std::vector<std::uint32_t> sent(300, node.rank() + 1), got(300);

    region.write(next, 64, sent);
    remo::ack done;
    region.write_notify(next, 2048, "text");
    region.write(next, 2052, remo::object_bytes(sent[0]), done);
    done.wait(patience);
    CHECK(done.test());
    node.fence(remo::fence_scope::thread);
    all.wait(patience);

    std::uint32_t writer = (node.rank() + node.size() - 1) % node.size() + 1;
    region.read(node.rank(), 64, got);
    CHECK(got == std::vector<std::uint32_t>(300, writer));
    CHECK(region.read<std::uint32_t>(node.rank(), 2052) == writer);
    CHECK(std::memcmp(region.local().data() + 2048, "text", 4) == 0);
    std::array<char, 4> text{};
    remo::ack read;
    region.read(next, 2048, text, read);
    remo::future<std::uint32_t> word = region.read_async<std::uint32_t>(next, 2052);
    read.wait(patience);
    CHECK(std::string_view(text.data(), 4) == "text");
    CHECK(word.get(patience) == node.rank() + 1);

    remo_addr address = region.address(next, 2052);
    std::uint32_t by_address = 0;
    node.read(address, remo::object_bytes(by_address));
    CHECK(by_address == node.rank() + 1);

    region.fetch_add(0, 0, 2);
    all.wait(patience);
    CHECK(region.compare_swap(0, 0, 1, 9) == 2 * node.size());
    CHECK(node.compare_swap(region.address(0, 0), 1, 9) == 2 * node.size());
    CHECK(node.fetch_add(region.address(0, 0), 0) == 2 * node.size());
    CHECK(region.size_bytes() == 4096 && region.local().size() == 4096);
    CHECK(region.channel().stats().atomics > 0 && region.channel().name() == "region");
    all.wait(patience);
}

void test_atomic_var(remo::node &node) {
    remo::barrier all(node, "all");
    remo_atomic_var_options options{};
    options.count = 4;
    options.place = REMO_ATOMIC_VAR_STRIPED;
    remo::atomic_var words(node, "words", options);
    words.channel().wait(patience);
    remo::future<std::uint64_t> first = words.fetch_add_async(0, 5);
    words.fetch_add(1, 1);
    CHECK(first.get(patience) % 5 == 0);
    CHECK(first.is_ready());
    all.wait(patience);
    CHECK(words.load(0) == 5 * node.size() && words.load(1) == node.size());
    CHECK(words.load_async(1).get(patience) == node.size());
    if (node.rank() == 0) {
        words.store(2, 7);
        CHECK(words.exchange(2, 8) == 7);
        CHECK(words.compare_swap(2, 8, 9) == 8);
    }
    all.wait(patience);
    CHECK(words.load(2) == 9);
    all.wait(patience);
}

/* A future is destroyed while its operation is in flight: its memory is not written afterwards. */
void test_cancel(remo::node &node) {
    using word = remo::future<std::uint64_t>;
    remo::barrier all(node, "all");
    remo::region region(node, "region", 1 << 20);
    region.channel().wait(patience);
    std::vector<char> big(1 << 20, 'x'), places(100 * sizeof(word));
    remo::ack abandoned, other;
    region.write(0, 0, big, abandoned);
    region.write(0, 0, big, other);
    abandoned.join(other);
    abandoned.cancel();
    for (std::size_t i = 0; i < 100; i++)
        (new (&places[i * sizeof(word)]) word(region.read_async<std::uint64_t>(0, 8)))->~word();
    std::fill(places.begin(), places.end(), 'e');
    node.fence(remo::fence_scope::global);
    all.wait(patience);
    CHECK(region.read<std::uint64_t>(0, 8) == 0x7878787878787878);
    CHECK(places == std::vector<char>(places.size(), 'e'));
    all.wait(patience);
}

void test_queue(remo::node &node) {
    remo::barrier all(node, "all");
    remo_queue_options options{};
    options.slot_bytes = 100;
    options.capacity = 30;
    remo::queue queue(node, "queue", options);
    queue.channel().wait(patience);
    for (std::uint32_t i = 0; i < 5; i++)
        CHECK(queue.push(std::string(node.rank() * 10 + i, 'x'), patience));
    all.wait(patience);
    if (node.rank() == 0) {
        std::size_t sum = 0;
        for (std::uint32_t i = 0; i < 5 * node.size(); i++)
            sum += queue.pop(patience).value().size();
        CHECK(sum == 25 * node.size() * (node.size() - 1) + 10 * node.size());
        CHECK(!queue.pop(0ns));
        std::array<std::byte, 100> element;
        CHECK(queue.push("abc") && queue.pop(element, patience) == 3u && element[2] == std::byte('c'));
        while (queue.push("fill", 0ns))
            ;
    }
    all.wait(patience);
}

void test_ringbuffer(remo::node &node) {
    remo::barrier all(node, "all");
    remo::ringbuffer ring(node, "ring");
    ring.channel().wait(patience);
    if (node.rank() == 0) {
        std::uint64_t position = 0;
        for (int i = 0; i < 100; i++)
            position = ring.send(std::string(std::size_t(i) + 1, 'm'), patience);
        auto loan = ring.loan(100, patience).value();
        ring.cancel();
        loan = ring.loan(100, patience).value();
        std::memcpy(loan.data(), "built in place", 14);
        CHECK(ring.commit(14) > position);
        ring.wait_received(position + 1, patience);
    } else {
        for (std::size_t i = 0; i < 100; i++)
            CHECK(ring.receive(patience).value().size() == i + 1);
        auto message = ring.peek(patience).value();
        CHECK(message.size() == 14 && std::memcmp(message.data(), "built in place", 14) == 0);
        ring.consume();
        ring.acknowledge();
        CHECK(!ring.peek(0ns));
        CHECK(!ring.receive(0ns));
    }
    CHECK(ring.message_bytes_max() > 1000);
    all.wait(patience);
}

struct row {
    std::uint64_t rank, round;
    double numbers[10];
};

void test_shared(remo::node &node) {
    remo::barrier all(node, "all");
    remo::owned_var<row> var(node, "var");
    remo::sst<row> table(node, "table");
    node.root().wait(patience);
    if (node.rank() == 0) {
        var.store(row{0, 1, {2.5}});
        var.push_all();
        all.wait(patience);
    } else {
        CHECK(var.wait(row{}, patience).numbers[0] == 2.5);
        all.wait(patience);
        CHECK(var.load().round == 1 && var.pull().round == 1);
    }
    table.store(row{node.rank(), 3, {}});
    table.push_all();
    std::uint32_t participants = 0;
    table.wait(
        [&](remo::sst<row> &t) {
            bool is_complete = true;
            participants = 0;
            for (std::uint32_t n = t.next(0); n < REMO_NODES_MAX; n = t.next(n + 1), participants++)
                is_complete = is_complete && t.load(n).round == 3 && t.load(n).rank == n;
            return is_complete;
        },
        patience);
    CHECK(participants == node.size());
    bool caught = false;
    try {
        table.wait([](remo::sst<row> &) -> bool { throw std::domain_error("mine"); }, patience);
    } catch (const std::domain_error &) {
        caught = true;
    }
    CHECK(caught);
    all.wait(patience);
}

void test_kv(remo::node &node) {
    remo::barrier all(node, "all");
    remo_kv_options options{};
    options.value_bytes_max = 5000;
    remo::kv map(node, "map", options);
    map.channel().wait(patience);
    std::string key = "key " + std::to_string(node.rank()), value(3000 + node.rank(), 'v');
    CHECK(map.insert(key, value));
    CHECK(!map.insert(key, "again"));
    all.wait(patience);
    for (std::uint32_t n = 0; n < node.size(); n++)
        CHECK(map.get("key " + std::to_string(n)) == std::string(3000 + n, 'v'));
    CHECK(map.count() == node.size());
    all.wait(patience);
    CHECK(map.update(key, "short") && map.get(key) == "short");
    CHECK(!map.update("absent", "x") && !map.erase("absent") && !map.get("absent"));
    std::array<char, 8> room{};
    CHECK(map.get(key, room) == 5u && room[4] == 't');
    remo_kv_op op{};
    op.kind = REMO_KV_GET;
    op.key = key.data();
    op.key_bytes = key.size();
    op.value = room.data();
    op.value_bytes = room.size();
    map.start(op);
    while (map.poll() > 0)
        ;
    CHECK(map.wait(op) == 0 && op.value_bytes == 5);
    CHECK(map.erase(key) && !map.get(key));
    all.wait(patience);
}

/* Counters, compare-and-put, and iteration over all keys. */
void test_kv_entries(remo::node &node) {
    remo::barrier all(node, "all");
    remo_kv_options options{};
    options.key_bytes_max = 200;
    remo::kv map(node, "map", options);
    map.channel().wait(patience);
    std::uint64_t zero = 0;
    map.insert("count", remo::object_bytes(zero));
    map.insert("text", ".");
    all.wait(patience);
    for (int i = 0; i < 10; i++) {
        CHECK(map.fetch_add("count", 2));
        for (std::string text = *map.get("text"); !map.compare_put("text", text, text + "x");)
            text = *map.get("text");
    }
    all.wait(patience);
    CHECK(map.fetch_add("count", 0) == 20 * node.size());
    CHECK(map.get("text") == "." + std::string(10 * node.size(), 'x'));
    CHECK(!map.fetch_add("absent", 1) && !map.compare_put("absent", "", "")
          && !map.compare_put("text", "", ""));
    CHECK_THROWS(map.fetch_add("text", 1), remo::errc::invalid_argument);
    all.wait(patience);
    if (node.rank() == 0)
        map.erase("count");
    /* Longer than the initial buffers of a cursor; the second put replaces the first. */
    std::string key = std::to_string(node.rank()) + std::string(150, 'k'), value(900, 'v');
    map.put(key, "first");
    map.put(key, value);
    all.wait(patience);
    std::uint32_t found = 0;
    for (const auto &[name, content] : map.entries()) {
        CHECK(content == (name == "text" ? *map.get("text") : value));
        found++;
    }
    CHECK(found == node.size() + 1);
    remo::kv other(node, "other");
    CHECK(other.entries().begin() == other.entries().end() && !other.entries().next());
    all.wait(patience);
}

void test_tree(remo::node &node) {
    remo::barrier all(node, "all");
    remo_tree_options options{};
    options.node_bytes = 32768;
    options.value_bytes_max = 3000;
    remo_tree_key boundaries[] = {{"key 1", 5}, {"key 2", 5}};
    options.boundaries = boundaries;
    remo::tree map(node, "map", options);
    map.channel().wait(patience);
    std::string key = "key " + std::to_string(node.rank()), value(2000 + node.rank(), 'v');
    CHECK(map.insert(key, value) && !map.insert(key, "again"));
    CHECK(map.owners() == node.size() && map.owner(key) == node.rank() && map.stats().version > 0);
    all.wait(patience);
    for (std::uint32_t n = 0; n < node.size(); n++)
        CHECK(map.get("key " + std::to_string(n)) == std::string(2000 + n, 'v'));
    remo::tree_snapshot before = map.snapshot();
    all.wait(patience);
    CHECK(map.update(key, "short") && map.get(key) == "short");
    CHECK(map.get_at(before, key) == value);
    CHECK(!map.update("absent", "x") && !map.erase("absent") && !map.get("absent"));
    std::array<char, 8> room{};
    CHECK(map.get(key, room) == 5u && room[4] == 't');
    CHECK_THROWS(map.get_at(before, key, room), remo::errc::message_size);
    CHECK_THROWS(map.get_at({1}, key), remo::errc::invalid_argument);
    map.put(key, "put");
    CHECK(!map.compare_put(key, "pot", "x") && map.compare_put(key, "put", "other"));
    CHECK(map.get(key) == "other" && !map.compare_put("absent", "", "x"));
    CHECK_THROWS(map.erase_range({key, {}, REMO_TREE_DESCENDING}), remo::errc::invalid_argument);
    CHECK(map.erase_range({key, key, REMO_TREE_TO_INCLUDED}) == 1 && !map.get(key));
    map.put(key, "put");
    CHECK(map.erase(key) && !map.get(key));
    all.wait(patience);
    CHECK(map.count() == 0 && map.entries().begin() == map.entries().end());
    std::uint32_t found = 0;
    for (const auto &[name, content] : map.entries({{}, {}, 0, 0, &before}))
        CHECK(name == "key " + std::to_string(found) && content.size() == 2000 + found++);
    CHECK(found == node.size());
    all.wait(patience);
}

/* The keys that a scan of the range returns, each followed by a comma. */
std::string keys_of(remo::tree_cursor cursor) {
    std::string keys;
    for (const auto &entry : cursor)
        keys += std::string(entry.key) + ',';
    return keys;
}

/* Ranges in pages of one or two entries, in both directions. */
void test_tree_scan(remo::node &node) {
    remo::barrier all(node, "all");
    remo::tree map(node, "map");
    map.channel().wait(patience);
    for (char c = 'a'; node.rank() == 0 && c <= 'g'; c++)
        map.put(std::string(1, c), std::string(20, c));
    all.wait(patience);
    constexpr std::uint32_t descending = REMO_TREE_DESCENDING, included = REMO_TREE_TO_INCLUDED;
    for (std::size_t page_bytes : {25u, 60u, 1000u}) {
        CHECK(keys_of(map.entries({}, page_bytes)) == "a,b,c,d,e,f,g,");
        CHECK(keys_of(map.entries({"b", "e"}, page_bytes)) == "b,c,d,");
        CHECK(keys_of(map.entries({"b", "e", included | REMO_TREE_FROM_EXCLUDED}, page_bytes)) == "c,d,e,");
        CHECK(keys_of(map.entries({"b", "e", descending | included}, page_bytes)) == "e,d,c,b,");
        CHECK(keys_of(map.entries({{}, {}, descending, 3}, page_bytes)) == "g,f,e,");
        CHECK(keys_of(map.entries({"b", {}, 0, 4}, page_bytes)) == "b,c,d,e,");
        CHECK(keys_of(map.entries({"x", {}}, page_bytes)).empty());
    }
    CHECK_THROWS(map.entries({}, 24).next(), remo::errc::message_size);
    std::array<char, 60> buffer{};
    remo::tree_result result = map.scan({"c", {}}, buffer);
    CHECK(result.size() == 2 && !result.is_complete());
    for (int i = 0; i < 2; i++) {
        std::string keys, values;
        for (const auto &[key, value] : result)
            keys += key, values += value;
        CHECK(keys == "cd" && values == std::string(20, 'c') + std::string(20, 'd'));
    }
    CHECK(map.scan({"f", {}}, buffer).is_complete() && map.count({"c", "f"}) == 3);
    std::error_code code;
    CHECK(map.scan({"b", "a"}, buffer, code).empty() && code == remo::errc::invalid_argument);
    remo::tree_cursor empty = map.entries({"b", "a"}, 0, code);
    CHECK(code == remo::errc::invalid_argument);
    CHECK(!empty.next(code) && code == remo::errc::invalid_argument);
    CHECK_THROWS(map.entries({"b", "a"}), remo::errc::invalid_argument);
    remo::tree_cursor cursor = map.entries({"b", "f"}, 60);
    CHECK(cursor.next()->key == "b" && cursor.next()->key == "c" && cursor.prev()->key == "b");
    CHECK(!cursor.prev() && cursor.next()->key == "b");
    cursor.seek("d5");
    CHECK(cursor.next()->key == "e" && cursor.prev()->value == std::string(20, 'd'));
    cursor.seek("e");
    CHECK(cursor.prev()->key == "d" && cursor.next()->key == "e" && !cursor.next() && cursor.prev());
    cursor.seek(std::string(65, 'k'), code);
    CHECK(code == remo::errc::invalid_argument);
    CHECK_THROWS(remo::tree().put("k", "v"), remo::errc::invalid_argument);
    all.wait(patience);
    char value[20];
    remo_tree_op ops[2] = {};
    for (remo_tree_op &op : ops) {
        op.kind = REMO_TREE_GET;
        op.key = &op == ops ? "b" : "absent";
        op.key_bytes = &op == ops ? 1 : 6;
        op.value = value;
        op.value_bytes = sizeof value;
        map.start(op);
    }
    CHECK(map.wait(ops[0]) == 0 && ops[0].value_bytes == 20 && value[19] == 'b');
    CHECK(map.wait(ops[1]) == -ENOENT && map.poll() == 0);
    ops[0].key_bytes = 65;
    CHECK_THROWS(map.start(ops[0]), remo::errc::invalid_argument);
    all.wait(patience);
}

/* Keys from first to end - 1, as text of four digits, made by the iteration. */
struct numbers {
    struct iterator {
        int at;
        std::pair<std::string, std::string> operator*() const {
            if (at == 7777)
                throw std::runtime_error("no number 7777");
            std::string text = std::to_string(10000 + at).substr(1);
            return {text, std::string(static_cast<std::size_t>(at % 50), 'v')};
        }
        iterator &operator++() {
            ++at;
            return *this;
        }
        bool operator!=(const iterator &other) const {
            return at != other.at;
        }
    };
    int first, last;
    iterator begin() const {
        return {first};
    }
    iterator end() const {
        return {last};
    }
};

/* Loads, gets of several keys, and several writes at one instant. */
void test_tree_batches(remo::node &node) {
    remo::barrier all(node, "all");
    remo_tree_options options{};
    remo_nodeset_add(&options.owners, 0);
    options.node_bytes = 32768;
    options.value_bytes_max = 3000;
    remo::tree map(node, "map", options);
    map.channel().wait(patience);
    std::error_code code;
    if (node.rank() == 0) {
        const std::map<std::string, std::string> first{{"0", ""}, {"00", std::string(2000, 'v')}};
        CHECK(map.load(first, 100) == 2 && map.load(numbers{1, 3000}) == 2999);
        CHECK(map.load(std::vector<std::pair<const char *, std::string_view>>{}) == 0);
        try {
            map.load(numbers{7000, 8000});
            CHECK(false);
        } catch (const std::runtime_error &thrown) {
            CHECK(thrown.what() == std::string("no number 7777"));
        }
        CHECK(map.load(first, 49, code) == 0 && code == remo::errc::invalid_argument);
        CHECK_THROWS(map.load(numbers{2999, 4000}), remo::errc::exists);
    } else {
        CHECK(map.load(numbers{0, 1}, 0, code) == 0 && code == remo::errc::not_permitted);
    }
    all.wait(patience);
    CHECK(map.count() == 2 + 2999 + 777);
    auto values = map.get_many(std::vector<std::string>{"absent", "7776", "00", "0000", "0020"});
    CHECK(values.size() == 5 && !values[0] && values[1] == std::string(26, 'v')
          && values[2] == std::string(2000, 'v') && !values[3] && values[4] == std::string(20, 'v'));
    CHECK(map.get_many(std::vector<std::string>{}, code).empty() && !code);
    CHECK(map.get_many(std::vector<std::string>{std::string(65, 'k')}, code).empty()
          && code == remo::errc::invalid_argument);
    all.wait(patience);
    std::string mine = "x" + std::to_string(node.rank());
    CHECK(!map.apply({{REMO_TREE_INSERT, mine, "1"}, {REMO_TREE_UPDATE, mine, "2"}}));
    CHECK(map.apply({{REMO_TREE_UPDATE, mine, "3"}, {REMO_TREE_INSERT, mine, "4"}}) == 1u);
    CHECK(map.apply({{REMO_TREE_REMOVE, "absent"}}) == 0u);
    CHECK(map.apply({{REMO_TREE_COMPARE_PUT, mine, "5", "3"}}) == 0u && map.get(mine) == "2");
    CHECK(!map.apply({{REMO_TREE_COMPARE_PUT, mine, "5", "2"}}, code) && !code && map.get(mine) == "5");
    CHECK(!map.apply({}, code) && code == remo::errc::invalid_argument);
    CHECK_THROWS(map.apply({{REMO_TREE_UPSERT, std::string(65, 'k')}}), remo::errc::invalid_argument);
    CHECK(!map.apply({{REMO_TREE_REMOVE, mine}, {REMO_TREE_UPSERT, mine, "6"}}) && map.get(mine) == "6");
    all.wait(patience);
}

void test_table(remo::node &node) {
    remo::barrier all(node, "all");
    remo_table_options options{};
    options.key_bytes_max = 32;
    options.value_bytes_max = 2000;
    remo::table map(node, "map", options);
    node.root().wait(patience);
    std::string mine = "key " + std::to_string(node.rank()), next = "key ";
    next += std::to_string((node.rank() + 1) % node.size());
    CHECK(!map.get(mine) && !map.update(mine, "1") && !map.erase(mine));
    CHECK(map.insert(mine, "1") && !map.insert(mine, "2") && map.get(mine) == "1");
    CHECK(map.update(mine, std::string(2000, 'v')));
    all.wait(patience);
    std::array<char, 2000> value{};
    CHECK(map.get(next, value) == 2000u && value[1999] == 'v' && map.owner(next) < node.size());
    std::error_code code;
    CHECK(!map.get(next, remo::bytes(value.data(), 10), code) && code == remo::errc::message_size);
    CHECK_THROWS(map.put(std::string(33, 'k'), ""), remo::errc::message_size);
    CHECK_THROWS(remo::table().put("k", ""), remo::errc::invalid_argument);
    all.wait(patience);
    map.put(mine, "");
    CHECK(map.get(mine) == "" && map.erase(mine) && !map.get(mine));
    all.wait(patience);
}

/* A function that throws aborts its transaction; one that has read inconsistent values runs again. */
void test_tx_exceptions(remo::transaction &tx, remo::table &accounts, const std::string &mine) {
    try {
        tx.run([&](remo::transaction &t) {
            t.put(accounts, mine, "lost");
            throw std::runtime_error("stop");
        });
        CHECK(false);
    } catch (const std::runtime_error &thrown) {
        CHECK(thrown.what() == std::string("stop"));
    }
    int runs = 0;
    CHECK(tx.run([&](remo::transaction &t) {
        std::string before = t.read(accounts, mine).value();
        if (runs++ == 0) {
            accounts.put(mine, "between"); /* in conflict with this transaction */
            throw std::runtime_error("not consistent");
        }
        CHECK(before == "between");
    }));
    CHECK(runs == 2 && accounts.get(mine) == "between");
}

void test_tx(remo::node &node) {
    constexpr std::int64_t rounds = 200;
    remo::barrier all(node, "all");
    remo_table_options options{};
    options.key_bytes_max = 16;
    remo::table accounts(node, "accounts", options);
    remo::tx_space space(node, "space", {accounts}), early(node, "early", {accounts}, REMO_TX_EARLY);
    node.root().wait(patience);
    remo::transaction tx(space), locking(early);
    const std::vector<std::string> keys{"first", "second", "third"};
    if (node.rank() == 0)
        CHECK(tx.run([&](remo::transaction &t) {
            for (const std::string &key : keys)
                t.put(accounts, key, remo::object_bytes(std::int64_t(1000)));
        }));
    all.wait(patience);
    for (std::int64_t i = 0; i < rounds; i++)
        CHECK(tx.run(
            [&](remo::transaction &t) {
                const std::string &from = keys[(node.rank() + i) % 3], &to = keys[(node.rank() + i + 1) % 3];
                std::int64_t sum = t.read<std::int64_t>(accounts, from).value() - 1;
                t.put(accounts, from, remo::object_bytes(sum));
                sum = t.read<std::int64_t>(accounts, to).value() + 1;
                CHECK(t.update(accounts, to, remo::object_bytes(sum)));
                return remo::tx_step::commit;
            },
            patience));
    for (std::int64_t i = 0; i < rounds; i++) /* a conflict throws in the function, which runs again */
        CHECK(locking.run(
            [&](remo::transaction &t) {
                const std::string &from = keys[(node.rank() + i) % 3], &to = keys[(node.rank() + i + 1) % 3];
                std::int64_t sums[2];
                for (std::size_t j = 0; j < 2; j++)
                    CHECK(t.read_for_update(accounts, j == 0 ? from : to, remo::object_bytes(sums[j]))
                          == sizeof sums[j]);
                t.put(accounts, from, remo::object_bytes(sums[0] - 1));
                t.put(accounts, to, remo::object_bytes(sums[1] + 1));
            },
            patience));
    locking.begin();
    CHECK(!locking.read_for_update(accounts, "absent " + std::to_string(node.rank())));
    locking.abort();
    all.wait(patience);
    std::int64_t total = 0;
    CHECK(tx.run([&](remo::transaction &t) {
        total = 0;
        for (const auto &value : t.read_many(accounts, keys)) {
            std::int64_t sum = 0;
            CHECK(value && value->size() == sizeof sum);
            std::memcpy(&sum, value->data(), sizeof sum);
            total += sum;
        }
        CHECK(!t.read_many(accounts, std::vector<std::string>{"absent"}).at(0));
    }));
    CHECK(total == 3000);

    std::string mine = "mine " + std::to_string(node.rank());
    CHECK(!tx.run([&](remo::transaction &t) {
        CHECK(t.insert(accounts, mine, "1"));
        return remo::tx_step::abort;
    }));
    CHECK(!accounts.get(mine));
    tx.begin();
    CHECK(tx.insert(accounts, mine, "2") && !tx.insert(accounts, mine, "3") && tx.check() && tx.commit());
    CHECK(tx.settle() == remo::tx_fate::committed && !tx.last_conflict());
    tx.begin();
    CHECK(tx.read(accounts, mine) == "2");
    accounts.put(mine, "4");
    CHECK(tx.erase(accounts, mine) && !tx.commit() && tx.last_conflict());
    std::error_code code;
    CHECK(!tx.read(accounts, mine, code) && code == remo::errc::stale_address);
    tx.begin();
    CHECK_THROWS(tx.begin(), std::errc::device_or_resource_busy);
    tx.abort();
    test_tx_exceptions(tx, accounts, mine);
    all.wait(patience);
}

/* Elements are moved to a table; a consumer waits for them. */
void test_tx_queue(remo::node &node) {
    constexpr std::uint32_t elements = 60;
    remo::barrier all(node, "all");
    remo::tx_queue jobs(node, "jobs");
    remo::table done(node, "done");
    remo::tx_space space(node, "space", {jobs, done});
    node.root().wait(patience);
    remo::transaction tx(space);
    for (std::uint32_t i = 0; node.rank() == 0 && i < elements; i++)
        CHECK(tx.run([&](remo::transaction &t) { t.push(jobs, remo::object_bytes(i)); }, patience));
    for (std::uint32_t i = 0; node.rank() > 0 && i < elements / 2; i++)
        CHECK(tx.run(
            [&](remo::transaction &t) {
                std::optional<std::string> element = t.pop(jobs);
                if (!element)
                    return remo::tx_step::wait;
                CHECK(t.insert(done, *element, "done"));
                return remo::tx_step::commit;
            },
            patience));
    all.wait(patience);
    for (std::uint32_t i = 0; i < elements; i++)
        CHECK(done.get(remo::object_bytes(i)) == "done");
    CHECK(tx.run([&](remo::transaction &t) { CHECK(t.count(jobs) == 0 && !t.pop(jobs)); }));
    tx.begin();
    CHECK(!tx.read(done, "absent") && !tx.wait(remo::timeout(1)));
    tx.abort();
    all.wait(patience);
}

void test_collective(remo::node &node) {
    std::uint32_t rank = node.rank(), size = node.size();
    remo::barrier all(node, "all");
    remo::collective calls(node, "calls");
    calls.channel().wait(patience);
    std::uint64_t total = std::uint64_t(size) * (size - 1) / 2;
    CHECK(calls.all_reduce(std::uint64_t(rank), remo::reduction::sum, patience) == total);
    CHECK(calls.all_reduce(-std::int64_t(rank), remo::reduction::min, patience) == 1 - std::int64_t(size));
    CHECK(calls.all_reduce(rank / 2.0, remo::reduction::max, patience) == (size - 1) / 2.0);
    std::vector<std::uint64_t> many(40000, rank + 1), combined(40000);
    calls.all_reduce(many, combined, remo::reduction::sum, patience);
    CHECK(combined == std::vector<std::uint64_t>(40000, total + size));
    const std::uint64_t bit[] = {std::uint64_t(1) << rank};
    std::array<std::uint64_t, 1> bits{};
    calls.reduce(1, bit, bits, remo::reduction::bit_xor, patience);
    CHECK(bits[0] == (rank == 1 ? (std::uint64_t(1) << size) - 1 : 0));
    std::string text = rank == 2 ? "the root" : "........";
    calls.broadcast(2, text, patience);
    CHECK(text == "the root");
    std::vector<std::uint32_t> ranks(rank == 0 ? size : 0);
    calls.gather(0, remo::object_bytes(rank), ranks, patience);
    std::vector<std::uint32_t> expected = calls.all_gather(rank, patience);
    CHECK(expected.size() == size && expected[size - 1] == size - 1 && (rank != 0 || ranks == expected));
    std::vector<std::uint64_t> small(39999);
    CHECK_THROWS(calls.all_reduce(many, small, remo::reduction::sum, patience), remo::errc::invalid_argument);
    CHECK_THROWS(calls.all_gather(text, small[0] ? remo::bytes() : remo::object_bytes(small[0]), patience),
                 remo::errc::invalid_argument);
    all.wait(patience);
}

/* An event loop with poll waits for a message, and then for any of several reads. */
void test_event(remo::node &node) {
    remo::barrier all(node, "all");
    remo::ringbuffer ring(node, "ring");
    remo::region region(node, "region", 4096);
    node.root().wait(patience);
    if (node.rank() == 0) {
        ring.send("news", patience);
    } else {
        remo::event event(node);
        std::optional<std::vector<std::byte>> message;
        for (event.arm(); !(message = ring.receive(0ns)); event.arm()) {
            pollfd descriptor = {event.fd(), POLLIN, 0};
            CHECK(poll(&descriptor, 1, 100000) == 1 && descriptor.revents == POLLIN);
        }
        CHECK(message->size() == 4);
        event.close();
        CHECK_THROWS(event.arm(), remo::errc::invalid_argument);
    }
    std::uint64_t written = 7, first = 0;
    region.write(node.rank(), 8, remo::object_bytes(written));
    node.fence(remo::fence_scope::thread);
    remo::ack read;
    region.read(node.rank(), 8, remo::object_bytes(first), read);
    remo::future<std::uint64_t> second = region.read_async<std::uint64_t>(node.rank(), 8);
    std::size_t index = remo::wait_any({nullptr, read.get(), second.handle()}, patience);
    CHECK(index == 1 || index == 2);
    std::array<remo_ack *, 2> acks{index == 1 ? nullptr : read.get(), index == 2 ? nullptr : second.handle()};
    CHECK(remo::wait_any(acks, patience) == 2 - index);
    CHECK(first == 7 && second.get() == 7);
    acks.fill(nullptr);
    CHECK_THROWS(remo::wait_any(acks, patience), remo::errc::invalid_argument);
    all.wait(patience);
}

std::size_t bytes_of(const remo::const_bytes &view) {
    return view.size();
}

/* Views of text never read past its array. */
void test_bytes(remo::node &) {
    static const char exact[] = {'a', 'b'};
    char text[8] = "abc", full[2] = {'x', 'y'};
    const char *pointer = text;
    CHECK(bytes_of("abc") == 3 && bytes_of("a\0c") == 3 && bytes_of("") == 0);
    CHECK(bytes_of(exact) == 2 && bytes_of(text) == 3 && bytes_of(full) == 2);
    CHECK(bytes_of(pointer) == 3 && bytes_of(&text[1]) == 2);
    CHECK(bytes_of(std::string("a\0c", 3)) == 3);
    remo::nodeset none = remo::channel_ref().participants();
    CHECK(remo_nodeset_empty(&none));
}

/* Node 0 publishes a block; node 1 uses it under a pin, which delays its reuse. */
void test_heap(remo::node &node) {
    remo::barrier all(node, "all");
    remo::atomic_var head(node, "head");
    remo::heap heap(node, "heap");
    heap.channel().wait(patience);
    if (node.rank() == 0) {
        remo_addr block = heap.alloc(64, 64);
        std::memset(heap.local(block), 0, 64);
        head.store(0, block.word);
    }
    all.wait(patience);
    remo_addr block{head.load(0)};
    std::error_code code;
    if (node.rank() == 1) {
        remo::heap_pin outer(heap);
        remo::heap_pin pin(heap);
        node.write(block, remo::object_bytes(std::uint64_t{7}));
        pin.unpin();
        all.wait(patience);
        all.wait(patience);
        heap.free(block, code);
        CHECK(code == remo::errc::invalid_argument);
    } else {
        all.wait(patience);
        std::uint64_t word = 0;
        node.read(block, remo::object_bytes(word));
        CHECK(word == 7);
        heap.retire(block);
        CHECK(!heap.reclaim(0ms) && heap.sizes().retired_bytes == 64);
        all.wait(patience);
        CHECK(heap.reclaim(patience) && heap.sizes().retired_bytes == 0);
    }
    heap.unpin(code);
    CHECK(code == remo::errc::invalid_argument);
    CHECK(heap.alloc(0, 0, code).word == 0 && code == remo::errc::invalid_argument);
    heap.free(heap.alloc(100));
    all.wait(patience);
}

/* Tasks count under one lock; an exception of a task reaches the join. */
void test_task(remo::node &node) {
    remo::barrier all(node, "all");
    remo::lock_table locks(node, "locks");
    remo::region region(node, "region", 8);
    region.channel().wait(patience);
    locks.channel().wait(patience);
    remo::scheduler scheduler(node);
    {
        std::vector<remo::task> tasks;
        for (int i = 0; i < 4; i++)
            tasks.push_back(scheduler.spawn([&] {
                remo::mutex mutex(locks, 0);
                std::lock_guard guard(mutex);
                auto count = region.read<std::uint64_t>(0, 0);
                remo::yield();
                region.write(0, 0, remo::object_bytes(++count));
            }));
        tasks.pop_back(); /* the destructor joins */
        for (auto &task : tasks)
            task.join();
        CHECK(!tasks[0].joinable());
    }
    all.wait(patience);
    CHECK(region.read<std::uint64_t>(0, 0) == 4 * node.size());
    auto thrower = scheduler.spawn([] { throw std::runtime_error("from the task"); });
    std::string text;
    try {
        thrower.join();
    } catch (const std::runtime_error &error) {
        text = error.what();
    }
    CHECK(text == "from the task");
    std::error_code code;
    remo::task none;
    none.join(0ms, code);
    CHECK(code == remo::errc::invalid_argument);
    remo::scheduler second(node, {}, code);
    CHECK(code.value() == EBUSY);
    all.wait(patience);
}

/* A channel of the program is the parent of objects; a buffer of the node needs no copy. */
void test_channel(remo::node &node) {
    remo::channel outer(node, "outer", "test");
    remo::barrier all(outer, "all");
    outer.ref().wait(patience);
    CHECK(all.channel().name() == "outer/all");
    std::uint32_t next = (node.rank() + 1) % node.size();
    CHECK(outer.ref().peer(next) == remo::channel_state::connected);
    CHECK(remo_nodeset_has(std::addressof(std::as_const(*remo_channel_participants(outer.get()))), next));
    remo::region region(outer, "region", 64);
    region.channel().wait(patience);
    {
        remo::buffer buffer(node);
        remo::ack done;
        buffer.data()[0] = std::byte(node.rank() + 1);
        region.write(next, 0, remo::const_bytes(buffer.data(), 1), done);
        done.wait(patience);
        node.fence(remo::fence_scope::pair, next);
    }
    all.wait(patience);
    CHECK(region.read<unsigned char>(next, 0) == node.rank() + 1);
    CHECK(node.peer(next) == remo::peer_state::up && !node.fabric().empty() && node.stats().writes > 0);
    all.wait(patience);
}

const area areas[] = {
    {"region", test_region},
    {"atomic_var", test_atomic_var},
    {"cancel", test_cancel},
    {"queue", test_queue},
    {"ringbuffer", test_ringbuffer},
    {"shared", test_shared},
    {"kv", test_kv},
    {"kv_entries", test_kv_entries},
    {"tree", test_tree},
    {"tree_scan", test_tree_scan},
    {"tree_batches", test_tree_batches},
    {"table", test_table},
    {"tx", test_tx},
    {"tx_queue", test_tx_queue},
    {"collective", test_collective},
    {"event", test_event},
    {"channel", test_channel},
    {"bytes", test_bytes},
    {"heap", test_heap},
    {"task", test_task},
};

} // namespace

int main(int argc, char **argv) {
    return run_area(argc, argv, areas);
}
