import java.io.PrintStream;
import java.util.Locale;
import org.HdrHistogram.Histogram;
import org.HdrHistogram.HistogramLogReader;
import org.HdrHistogram.HistogramLogWriter;

/** Hdr write FILE: the log and figures of tests/unit/cli/perf/testdata. Hdr read FILE: figures of each interval. */
public class Hdr {
    public static void main(String[] args) throws Exception {
        if (args[0].equals("write")) {
            Histogram histogram = new Histogram(3_600_000_000L, 3);
            for (long number = 0; number < 20_000; number++) {
                histogram.recordValue(number * number * 13 % 40_000_000 / (1 + number % 7 * 1000));
            }
            histogram.setStartTimeStamp(1_700_000_000_000L);
            histogram.setEndTimeStamp(1_700_000_010_500L);
            HistogramLogWriter writer = new HistogramLogWriter(new PrintStream(args[1]));
            writer.outputLogFormatVersion();
            writer.outputLegend();
            writer.outputIntervalHistogram(histogram);
            print(histogram);
        } else {
            HistogramLogReader reader = new HistogramLogReader(args[1]);
            for (var found = reader.nextIntervalHistogram(); found != null; found = reader.nextIntervalHistogram()) {
                Histogram histogram = (Histogram) found;
                System.out.print(histogram.getTag() + " " + histogram.getTotalCount() + " ");
                print(histogram);
            }
        }
    }

    private static void print(Histogram histogram) {
        for (double percent : new double[] {50, 90, 95, 99, 99.9, 99.99, 99.999, 100}) {
            System.out.print(histogram.getValueAtPercentile(percent) + " ");
        }
        System.out.println(String.format(Locale.ROOT, "%.6f", histogram.getMean()) + " " + histogram.getMaxValue());
    }
}
