/*
 * One row of the benchmark: Parallel Consumer, ordering KEY, over a topic that is already filled.
 *
 * Rules, the same as for every other consuming row: the clock starts when `warmup` records have been handled and
 * stops when `measured` more have been; a handler of `handlerMicros` does nothing else; the group is fresh.
 * It prints one JSON line on standard output.
 */
import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.CommitMode;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.KafkaConsumer;

public final class ParallelConsumerRow {
    public static void main(String[] args) throws Exception {
        String bootstrap = args[0];
        String topic = args[1];
        String group = args[2];
        int threads = Integer.parseInt(args[3]);
        long warmup = Long.parseLong(args[4]);
        long measured = Long.parseLong(args[5]);
        long handlerMicros = Long.parseLong(args[6]);
        long patienceSeconds = Long.parseLong(args[7]);
        
        Consumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings(bootstrap, group));
        ParallelConsumerOptions<byte[], byte[]> options = ParallelConsumerOptions.<byte[], byte[]>builder()
                .ordering(ProcessingOrder.KEY)
                .maxConcurrency(threads)
                .commitMode(CommitMode.PERIODIC_CONSUMER_ASYNCHRONOUS)
                .consumer(consumer)
                .build();
        ParallelStreamProcessor<byte[], byte[]> processor = ParallelStreamProcessor.createEosStreamProcessor(options);
        processor.subscribe(List.of(topic));

        AtomicLong handled = new AtomicLong();
        AtomicLong started = new AtomicLong();
        // When each fifth of what is measured was through: whether it gets slower the longer it runs.
        AtomicLongArray fifths = new AtomicLongArray(5);
        AtomicLong ended = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        long last = warmup + measured;
        processor.poll(context -> {
            if (handlerMicros > 0) {
                sleep(handlerMicros);
            }
            long count = handled.incrementAndGet();
            if (count == warmup) {
                started.set(System.nanoTime());
            }
            if (count > warmup && count <= last && (count - warmup) % (measured / 5) == 0) {
                fifths.set((int) ((count - warmup) / (measured / 5)) - 1, System.nanoTime());
            }
            if (count == last) {
                ended.set(System.nanoTime());
                done.countDown();
            }
        });
        boolean finished = done.await(patienceSeconds, TimeUnit.SECONDS);
        if (!finished) {
            System.out.println("{\"error\": \"only " + handled.get() + " of " + last + " records were handled in "
                    + patienceSeconds + " s\"}");
            System.exit(1);
        }
        double seconds = (ended.get() - started.get()) / 1e9;
        StringBuilder paces = new StringBuilder();
        for (int part = 0; part < 5; part++) {
            long from = part == 0 ? started.get() : fifths.get(part - 1);
            paces.append(part == 0 ? "" : ", ").append(Math.round(measured / 5 / ((fifths.get(part) - from) / 1e9)));
        }
        System.out.println("{\"seconds\": " + seconds + ", \"count\": " + measured + ", \"fifths\": [" + paces + "]}");
        System.out.flush();
        System.exit(0);
    }

    private static Properties settings(String bootstrap, String group) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("group.id", group);
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        String bytes = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
        properties.put("key.deserializer", bytes);
        properties.put("value.deserializer", bytes);
        return properties;
    }

    private static void sleep(long micros) {
        try {
            TimeUnit.MICROSECONDS.sleep(micros);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private ParallelConsumerRow() {}
}
