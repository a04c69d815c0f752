# A Java machine: the heap reserved and committed piecewise, threads, faults that it lives on, an exit code.
cat >Work.java <<'JAVA'
public class Work {
    static long total;
    static String none(int i) { return i < 0 ? "" : null; }
    public static void main(String[] args) throws Exception {
        Thread[] threads = new Thread[60];
        for (int t = 0; t < threads.length; t++) {
            final int size = 900 + t;
            threads[t] = new Thread(() -> { long n = 0; for (int i = 0; i < 300; i++) n += new byte[size].length; synchronized (Work.class) { total += n; } });
            threads[t].start();
        }
        for (Thread t : threads) t.join();
        int caught = 0;
        for (int i = 0; i < 5000; i++) try { none(i).length(); } catch (NullPointerException e) { caught++; }
        System.out.println("total " + total + " caught " + caught);
        System.exit(27);
    }
}
JAVA
javac -J-Xmx128m Work.java && java -Xmx48m -XX:+UseSerialGC Work
